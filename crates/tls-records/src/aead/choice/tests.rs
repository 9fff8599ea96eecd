use super::{AeadChoice, Class, DECIDED, Direction, OTHERS, Plan};
use crate::Suite;
use crate::aead::provider::Provider;

#[test]
fn choices_are_parsed_by_name() {
    for choice in AeadChoice::ALL {
        assert_eq!(choice.name().parse(), Ok(*choice));
        assert_eq!(choice.to_string(), choice.name());
    }
    assert_eq!(AeadChoice::default().name(), "auto");
    let why = "graviola".parse::<AeadChoice>().unwrap_err();
    assert!(why.contains("this build has auto, aws-lc"), "{why}");
    match "ring".parse::<AeadChoice>() {
        Ok(choice) => assert_eq!(choice.name(), "ring"),
        Err(why) => assert!(why.contains("the feature `ring`"), "{why}"),
    }
}

/// Every cell of a plan is independent of the others.
#[cfg(feature = "ring")]
#[test]
fn a_plan_keeps_one_provider_per_suite_class_and_direction() {
    for suite in Suite::ALL {
        for class in Class::ALL {
            for direction in Direction::ALL {
                let one = |s, c, d| (s, c, d) == (suite, class, direction);
                let plan = Plan::of(|s, c, d| if one(s, c, d) { Provider::Ring } else { Provider::AwsLc });
                assert_eq!((plan.0 & !DECIDED & !OTHERS).count_ones(), 1);
                assert!(plan.0 & OTHERS != 0);
                for s in Suite::ALL {
                    assert_eq!(plan.names(s), if s == suite { "aws-lc, ring" } else { "aws-lc" });
                    for c in Class::ALL {
                        for d in Direction::ALL {
                            let expected = if one(s, c, d) { Provider::Ring } else { Provider::AwsLc };
                            assert_eq!(plan.provider(s, c, d), expected);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn one_provider_for_everything_needs_one_context() {
    for provider in Provider::ALL {
        let plan = Plan::of(|_, _, _| provider);
        assert!(plan.0 & DECIDED != 0);
        assert_eq!(plan.0 & OTHERS == 0, provider == Provider::AwsLc);
        assert_eq!(plan.summary(Suite::Aes128Gcm), provider.name());
        assert!(Suite::ALL.into_iter().all(|suite| plan.names(suite) == provider.name()));
    }
}

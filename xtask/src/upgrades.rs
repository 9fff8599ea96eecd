//! Upgrades in a row under load, between two builds of `taut`.

use crate::cargo::cargo;
use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::run;
use crate::stage::Context;

/// Connections, messages per second and upgrades of the full run.
pub(crate) const FULL: &str = "10000,20000,100";

/// The tests: of plain servers, of hardened ones, without a log, and below a service manager that does what systemd does.
const TESTS: [&str; 4] = [
    "nothing_is_lost_in_a_row_of_upgrades_under_load",
    "nothing_is_lost_in_a_row_of_upgrades_of_hardened_servers",
    "nothing_is_lost_in_a_row_of_upgrades_whose_log_is_full",
    "nothing_is_lost_in_a_row_of_upgrades_below_a_service_manager",
];

/// Pairs of a proxy, messages per second, and both reloads and upgrades, by the test. TLS to servers doubles the work.
const PAIRS: [(&str, &str); 2] = [
    ("no_pair_of_a_proxy_is_cut_in_a_row_of_reloads_and_upgrades", "4000,10000,20"),
    ("no_pair_with_tls_on_both_sides_is_cut", "1000,4000,10"),
];

/// Builds `taut` with its default features and with few of them, and upgrades from one to the other and back. Servers of each
/// kind but the first are upgraded a fifth as often.
pub(crate) fn test(context: &Context, size: &str) -> Outcome {
    let other = paths::own("upgrades");
    let package = ["--profile", "dist", "--package", "tautline-cli", "--locked"];
    let mut build = cargo(&["build", "--no-default-features", "--features", "harden,proxy"]);
    run(build.args(package).arg("--target-dir").arg(&other), context.deadline)?;
    let fewer = fewer_upgrades(size).ok_or_else(|| Failure::Failed(format!("{size}: three numbers are needed")))?;
    let sizes = [size].into_iter().chain([fewer.as_str(); TESTS.len() - 1]);
    let plain = TESTS.iter().zip(sizes).map(|(name, size)| (format!("generations::{name}"), "TAUT_UPGRADES", size));
    let pairs = PAIRS.iter().map(|(name, size)| (format!("pairs::{name}"), "TAUT_PAIRS", *size));
    for (name, variable, size) in plain.chain(pairs) {
        let mut test = cargo(&["test", "--test", "program"]);
        test.args(package).args(["--", "--exact", "--nocapture"]).arg(name);
        test.env(variable, size).env("TAUT_OTHER_BUILD", other.join("dist/taut"));
        run(&mut test, context.deadline)?;
    }
    Ok(())
}

/// Returns the size with a fifth of its upgrades.
fn fewer_upgrades(size: &str) -> Option<String> {
    let (load, upgrades) = size.rsplit_once(',')?;
    Some(format!("{load},{}", upgrades.trim().parse::<u32>().ok()?.div_ceil(5)))
}

use crate::{Capabilities, DriverConfig, Error, KernelTls};
#[cfg(feature = "xdp")]
use tautline_io::Spin;
use tautline_io::kernel;
use tautline_tls::{EngineKind as _, plain};

/// Replaces features of `driver` that the kernel does not have, for sessions of `engine`.
///
/// epoll takes the place of io_uring, and records stay in user space if the kernel has no TLS. Each replacement is logged.
///
/// # Errors
/// If records are to go to the kernel, and the engine cannot export its keys.
pub fn settle(driver: DriverConfig, engine: &Capabilities) -> Result<DriverConfig, Error> {
    let driver = driver.available();
    if driver.kernel_tls() == KernelTls::Off || engine.engine == plain::Engine.name() {
        return Ok(driver);
    }
    if !engine.key_export {
        return Err(engine.refusal("leave records to the kernel").into());
    }
    let Err(error) = kernel::probe() else { return Ok(driver) };
    log::warn!("all records stay in user space: {error}");
    driver.with_kernel_tls(KernelTls::Off).map_err(|error| Error::Machine { what: "cannot use the driver", error })
}

/// The driver of this name, with its defaults.
///
/// The name is one of [`DriverConfig::NAMES`]. With the feature `xdp` it can also be `xdp:INTERFACE` or `xdp-spin:INTERFACE`.
///
/// # Errors
/// If there is no such driver, or this build does not have it.
pub fn driver_named(name: &str) -> Result<DriverConfig, String> {
    let Some((kind @ ("xdp" | "xdp-spin"), interface)) = name.split_once(':') else {
        return name.parse().map_err(|why: String| {
            if cfg!(feature = "xdp") { format!("{why}, xdp:INTERFACE, xdp-spin:INTERFACE") } else { why }
        });
    };
    if interface.is_empty() {
        return Err(format!("{kind}: needs an interface, as in {kind}:eth1"));
    }
    #[cfg(feature = "xdp")]
    {
        let mut config = tautline_xdp::Config::new(interface);
        if kind == "xdp-spin" {
            config.spin = Spin::default().idle;
        }
        Ok(config.into())
    }
    #[cfg(not(feature = "xdp"))]
    Err("this program was built without AF_XDP; build it with `--features xdp`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fused, Rustls};

    #[test]
    fn an_engine_without_key_export_refuses_kernel_tls() {
        let epoll = DriverConfig::default().with_kernel_tls(KernelTls::Auto).unwrap();
        let why = settle(epoll.clone(), Rustls.capabilities()).unwrap_err().to_string();
        assert!(why.contains("rustls cannot leave records to the kernel; take an engine that can"), "{why}");
        for halves in KernelTls::ALL {
            let select = "select".parse::<DriverConfig>().unwrap().with_kernel_tls(halves).unwrap();
            assert!(settle(select, Fused.capabilities()).is_ok(), "{halves}");
        }
        let expected = if kernel::probe().is_ok() { KernelTls::Auto } else { KernelTls::Off };
        assert_eq!(settle(epoll, Fused.capabilities()).unwrap().kernel_tls(), expected);
        assert!(
            settle("uring".parse().unwrap(), Rustls.capabilities()).is_ok(),
            "without kernel TLS nothing is refused"
        );
    }

    #[test]
    fn drivers_are_parsed_by_name() {
        for name in ["epoll", "spin", "uring-spin"] {
            assert_eq!(driver_named(name).unwrap().name(), name);
        }
        let why = driver_named("xdp").unwrap_err();
        assert!(why.contains("is no driver") && why.contains("xdp:INTERFACE") == cfg!(feature = "xdp"), "{why}");
        assert!(driver_named("xdp:").unwrap_err().contains("needs an interface"));
        for name in ["xdp:eth1", "xdp-spin:eth1"] {
            if let Err(error) = driver_named(name) {
                assert!(!cfg!(feature = "xdp") && error.contains("--features xdp"), "{error}");
            }
        }
    }
}

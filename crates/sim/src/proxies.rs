//! Proxies between clients and servers: each WebSocket is a pair of connections there, joined by bytes or by messages.

use crate::driver::{Driver, simulate};
use crate::host::Host;
use crate::plan::{Passing, proxy_address, server_address};
use crate::world::{World, held, left};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::{Config, Shard};
use tautline_io::ListenOptions;
use tautline_proxy::edge::Edge;
use tautline_proxy::{Live, config};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// Most bytes that may wait for one side of a pair: the bound from which the other side is not read, and what the turn adds that
/// passes it: an input of 64 KiB and a message, as records.
const MOST_WAITING: u64 = 2 * (64 << 10) + (64 << 10);

impl<E: Engine> World<E> {
    /// Adds the proxies of the plan, if it has any.
    pub(crate) fn add_proxies(&mut self, engine: impl Fn() -> E) -> io::Result<()> {
        let Some((count, passing)) = self.plan.proxies else { return Ok(()) };
        let wrong = |error: config::Faults| io::Error::other(error.to_string());
        let plan = config::parse(Path::new("simulated"), &self.configuration(passing), None, Instant::now());
        let live = Live::new(plan.map_err(wrong)?);
        for _ in 0..count {
            let host = self.hosts.len() + self.proxies.len();
            self.net.borrow_mut().hosts.push(Host { due: Some(0), ..Host::default() });
            let driver: Box<dyn tautline_io::Driver> = Box::new(Driver { net: self.net.clone(), host });
            let mut settings = Config::default();
            settings.raw = true;
            settings.deadlines = self.plan.server.deadlines.clone();
            settings.limits.pool = self.plan.server.limits.pool;
            let number = u32::try_from(host).unwrap_or(0);
            let mut shard = Shard::new(number, Arc::new(settings), engine(), driver, Edge::new(live.clone()))?;
            simulate(&self.net, &mut shard);
            shard.listen(&proxy_address(), &ListenOptions::default())?;
            self.proxies.push(shard);
        }
        Ok(())
    }

    /// The configuration of the proxies.
    fn configuration(&self, passing: Passing) -> String {
        let (scheme, longest) = (if self.target.is_secure() { "https" } else { "http" }, self.plan.longest_message);
        let deflate = self.plan.deflate.is_some();
        let messages = match passing {
            Passing::Bytes => String::new(),
            Passing::Messages => format!("messages = {{ max-size = \"{longest}B\", deflate = {deflate} }}\n"),
        };
        let connect = self.plan.server.deadlines.connect.as_millis();
        format!(
            "request-id = false\n[[route]]\nto = \"servers\"\n{messages}[backend.servers]\n\
             servers = [\"{scheme}://{}\"]\nfailures = 0\nconnect-time = \"{connect}ms\"\n",
            server_address()
        )
    }

    /// The bytes that wait in a proxy are bounded by its pairs.
    pub(crate) fn check_bounds(&self, host: usize) {
        let Some(shard) = host.checked_sub(self.hosts.len()).and_then(|proxy| self.proxies.get(proxy)) else { return };
        let counters = shard.counters();
        let most = (counters.connections + 1) * (MOST_WAITING + 2 * self.plan.longest_message as u64);
        if counters.memory_sending > most {
            let (waits, connections) = (counters.memory_sending, counters.connections);
            let finding = format!("{waits} bytes wait in proxy {host} with {connections} connections");
            self.net.borrow_mut().find(finding);
        }
    }

    pub(crate) fn drain_proxies(&mut self) {
        for proxy in 0..self.proxies.len() {
            self.proxies[proxy].drain(CloseCode::GOING_AWAY, "the end", Duration::from_secs(6));
            let host = self.hosts.len() + proxy;
            self.net.borrow_mut().hosts[host].due = Some(self.clock.now());
        }
    }

    pub(crate) fn check_proxies_ended(&self) {
        for (proxy, shard) in self.proxies.iter().enumerate() {
            if let Some(left) = left(shard) {
                self.net.borrow_mut().find(format!("proxy {proxy} has not ended: {left:?}"));
            }
        }
    }

    /// The holdings of proxies after everything has ended.
    pub(crate) fn held_by_proxies(&self) -> Vec<String> {
        let most = self.plan.server.limits.pool;
        let findings = self.proxies.iter().enumerate().filter_map(|(proxy, shard)| {
            let held = held(shard, most)?;
            Some(format!("proxy {proxy} holds {held:?} after everything has ended"))
        });
        findings.collect()
    }
}

use crate::outcome::{Failure, Outcome};
use crate::process;
use std::process::Command;

/// One of two network namespaces, each with one end of a pair of virtual interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    /// The interface on this side.
    pub(super) const fn interface(self) -> &'static str {
        match self {
            Self::A => "veth1",
            Self::B => "veth2",
        }
    }

    /// Its addresses.
    pub(super) const fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::A => ["10.99.0.1", "fd99::1"],
            Self::B => ["10.99.0.2", "fd99::2"],
        }
    }
}

/// Both namespaces, while this lives.
#[derive(Debug)]
pub(super) struct Spaces {
    names: [String; 2],
}

impl Spaces {
    pub(super) fn new() -> Result<Self, Failure> {
        let name = |side| format!("tautline-{}-{side}", std::process::id());
        let spaces = Self { names: [name("a"), name("b")] };
        let [a, b] = &spaces.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        let [one, other] = [Side::A, Side::B].map(Side::interface);
        ip(&["link", "add", one, "netns", a, "type", "veth", "peer", "name", other, "netns", b])?;
        for side in [Side::A, Side::B] {
            let within = |arguments: &[&str]| ip(&[&["-n", spaces.name(side)], arguments].concat());
            let [v4, v6] = side.addresses();
            within(&["link", "set", "lo", "up"])?;
            within(&["address", "add", &format!("{v4}/24"), "dev", side.interface()])?;
            within(&["address", "add", &format!("{v6}/64"), "dev", side.interface(), "nodad"])?;
            within(&["link", "set", side.interface(), "up"])?;
        }
        Ok(spaces)
    }

    fn name(&self, side: Side) -> &str {
        &self.names[usize::from(side == Side::B)]
    }

    /// The same command, to run on this side.
    pub(super) fn within(&self, side: Side, command: &Command) -> Command {
        let mut moved = Command::new("ip");
        moved.args(["netns", "exec", self.name(side)]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => moved.env(name, value),
                None => moved.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            moved.current_dir(folder);
        }
        moved
    }

    /// Whether an XDP program is on the interface of this side.
    pub(super) fn has_program(&self, side: Side) -> bool {
        let shown = process::output(Command::new("ip").args(["-n", self.name(side), "link", "show", side.interface()]));
        shown.is_none_or(|shown| shown.contains("prog/xdp"))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in &self.names {
            // It fails only where it was not made.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Outcome {
    let output = Command::new("ip").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Failed(format!("`ip {}` failed: {}", arguments.join(" "), error.trim())))
}

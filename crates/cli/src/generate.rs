//! Shell completions and manual pages, from the definitions of the arguments.

use crate::failure::Failure;
use crate::output;
use clap::Command;
use clap_complete::Shell;
use std::path::PathBuf;

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut completions bash > ~/.local/share/bash-completion/completions/taut
  taut completions zsh > ~/.zfunc/_taut
  taut completions fish > ~/.config/fish/completions/taut.fish")]
pub(crate) struct Completions {
    /// Shell to complete for.
    shell: Shell,
}

/// Write manual pages: taut.1, and one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut man --dir ~/.local/share/man/man1
  man taut-serve")]
pub(crate) struct Man {
    /// Folder to write to; it is made if it does not exist.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

pub(crate) fn completions(arguments: &Completions, program: &mut Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, program, "taut", &mut script);
    output::print(String::from_utf8_lossy(&script))
}

pub(crate) fn man(arguments: &Man, program: Command) -> Result<(), Failure> {
    let dir = &arguments.dir;
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(program, dir));
    written.map_err(|error| Failure::usage(format!("cannot write manual pages to {}: {error}", dir.display())))
}

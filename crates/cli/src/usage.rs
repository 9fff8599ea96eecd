//! Errors in the arguments, in the form of all other errors: one line with the problem and the remedy.

use crate::output;
use clap::Command;
use clap::error::{Error, ErrorKind};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Prints help on standard output, or the error on standard error.
pub(crate) fn report(error: &Error, program: &Command) -> ExitCode {
    if !error.use_stderr() {
        let styled = error.render();
        // Colours are for a terminal, and for those who did not refuse them (no-color.org).
        let is_plain = std::env::var_os("NO_COLOR").is_some() || !std::io::stdout().is_terminal();
        let printed = if is_plain { output::print(styled) } else { output::print(styled.ansi()) };
        return printed.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{}", error.render());
    } else {
        let is_command = |name: &String| program.get_subcommands().any(|command| command.get_name() == name);
        let command = std::env::args().nth(1).filter(is_command);
        eprintln!("taut: {}", line(&error.render().to_string(), command.as_deref()));
    }
    ExitCode::from(2)
}

/// The problem and the hints of a rendered error on one line, with the help that has the rest.
fn line(rendered: &str, command: Option<&str>) -> String {
    let rendered = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let parts = rendered.lines().map(str::trim).filter(|line| !line.is_empty());
    let parts = parts.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let mut text = String::new();
    for part in parts {
        let follows_list = text.ends_with(':');
        text += if text.is_empty() {
            ""
        } else if follows_list {
            " "
        } else {
            "; "
        };
        text += part;
    }
    let command = command.map_or_else(String::new, |command| format!("{command} "));
    format!("{text}; see taut {command}--help")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn errors_take_one_line() {
        let unknown = "error: unexpected argument '--por' found\n\n  tip: a similar argument exists: '--port'\n\nUsage: taut x\n\nFor more information, try '--help'.\n";
        assert_eq!(
            line(unknown, Some("serve")),
            "unexpected argument '--por' found; tip: a similar argument exists: '--port'; see taut serve --help"
        );
        let missing = "error: the following required arguments were not provided:\n  <URL>\n\nUsage: taut load <URL>\n";
        assert_eq!(line(missing, None), "the following required arguments were not provided: <URL>; see taut --help");
    }
}

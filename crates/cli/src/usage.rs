//! Errors in the arguments, in the form of all other errors: one line with the problem and the remedy.

use crate::failure::Failure;
use crate::output::{self, LogFormat};
use clap::Command;
use clap::error::{Error, ErrorKind};
use log::Level;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Prints help on standard output, or the error on standard error.
pub(crate) fn report(error: &Error, program: &Command) -> ExitCode {
    if !error.use_stderr() {
        let styled = error.render();
        // Colours are for a terminal, and for those who did not refuse them (no-color.org).
        let is_plain = std::env::var_os("NO_COLOR").is_some() || !std::io::stdout().is_terminal();
        let printed = if is_plain { output::print(styled) } else { output::print(styled.ansi()) };
        return printed.map_or_else(|failure| output::fail(&failure), |()| ExitCode::SUCCESS);
    }
    output::set_format(format(arguments()));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::report(Level::Error, error.render());
        return ExitCode::from(2);
    }
    let is_command = |name: &String| program.get_subcommands().any(|command| command.get_name() == name);
    let command = arguments().nth(1).filter(is_command);
    output::fail(&Failure::usage(line(&error.render().to_string(), command.as_deref())))
}

/// The arguments. One that is no text cannot be the name of a command or an option.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned())
}

/// The form of lines that these arguments ask for. As a whole they could not be understood.
fn format(mut arguments: impl Iterator<Item = String>) -> LogFormat {
    while let Some(argument) = arguments.next() {
        let is_json = match argument.strip_prefix("--log-format") {
            Some("") => arguments.next().is_some_and(|value| value == "json"),
            Some(value) => value == "=json",
            None => false,
        };
        if is_json {
            return LogFormat::Json;
        }
    }
    LogFormat::Text
}

/// The problem and the hints of a rendered error on one line, with the help that has the rest.
fn line(rendered: &str, command: Option<&str>) -> String {
    let rendered = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let parts = rendered.lines().map(str::trim).filter(|line| !line.is_empty());
    let parts = parts.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let mut text = String::new();
    for part in parts {
        text += match text.chars().next_back() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        text += part;
    }
    let command = command.map_or_else(String::new, |command| format!("{command} "));
    format!("{text}; see taut {command}--help")
}

#[cfg(test)]
mod tests {
    use super::{format, line};
    use crate::output::LogFormat;

    #[test]
    fn the_form_is_found_in_arguments_that_are_wrong() {
        let of = |line: &str| format(line.split(' ').map(str::to_owned));
        assert_eq!(of("taut serve --log-format json --wrong"), LogFormat::Json);
        assert_eq!(of("taut --log-format=json"), LogFormat::Json);
        assert_eq!(of("taut --log-format text json"), LogFormat::Text);
        assert_eq!(of("taut --log-format"), LogFormat::Text);
    }

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

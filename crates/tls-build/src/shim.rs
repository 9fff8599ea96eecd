//! Makes one object with one visible symbol from C files and archives.

use std::path::PathBuf;
use std::process::Command;

/// The variable with more flags for the compiler of shims, such as `-fsanitize=address`.
const FLAGS: &str = "TAUTLINE_SHIM_FLAGS";

/// A shim for one library.
pub struct Shim {
    table: String,
    dir: PathBuf,
    cc: cc::Build,
}

impl Shim {
    /// Describes a shim.
    ///
    /// `sources` define the symbol `table` (in C: `TL_TABLE`). The headers of the library lie in `include`.
    ///
    /// # Errors
    /// The folder for objects cannot be made.
    pub fn new(table: &str, sources: &[&str], include: &[PathBuf]) -> Result<Self, String> {
        let dir = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join(table);
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut cc = cc::Build::new();
        // Optimised in every profile, because every record passes through the shim.
        cc.files(sources).includes(include).out_dir(&dir).opt_level(2).pic(true).extra_warnings(true);
        cc.define("TL_TABLE", table).cargo_metadata(false);
        println!("cargo::rerun-if-env-changed={FLAGS}");
        for flag in std::env::var(FLAGS).unwrap_or_default().split_whitespace() {
            cc.flag(flag);
        }
        Ok(Self { table: table.to_owned(), dir, cc })
    }

    /// Defines a macro for the sources.
    pub fn define(&mut self, name: &str, value: &str) {
        self.cc.define(name, value);
    }

    /// Includes a header before each source.
    pub fn include_first(&mut self, header: &str) {
        self.cc.flag("-include").flag(header);
    }

    /// Compiles the sources to objects.
    ///
    /// # Errors
    /// The error of the compiler.
    pub fn compile(&self) -> Result<Vec<PathBuf>, String> {
        self.cc.try_compile_intermediates().map_err(|error| format!("{}: {error}", self.table))
    }

    /// Joins `objects` with the parts of `archives` that they need, and has rustc link the result.
    ///
    /// All symbols but the table's are hidden.
    ///
    /// # Errors
    /// The error of the tool that failed.
    pub fn link(&self, objects: &[PathBuf], archives: &[PathBuf]) -> Result<(), String> {
        let (joined, hidden) = (self.dir.join("joined.o"), self.dir.join("hidden.o"));
        let library = &self.table;
        let archive = self.dir.join(format!("lib{library}.a"));
        // Without -d, COMMON symbols would stay global, and those of two libraries with the same name would be merged.
        // Without --force-group-allocation, groups with the same name would be merged likewise.
        run(Command::new("ld")
            .args(["-r", "-d", "--force-group-allocation", "-o"])
            .arg(&joined)
            .args(objects)
            .arg("--start-group")
            .args(archives)
            .arg("--end-group"))?;
        run(Command::new("objcopy")
            .arg(format!("--keep-global-symbol={library}"))
            .arg("--strip-debug")
            .args([&joined, &hidden]))?;
        let _ = std::fs::remove_file(&archive);
        run(Command::new("ar").arg("crs").args([&archive, &hidden]))?;
        let _ = std::fs::remove_file(joined);
        let _ = std::fs::remove_file(hidden);
        println!("cargo::rustc-link-search=native={}", self.dir.display());
        println!("cargo::rustc-link-lib=static={library}");
        Ok(())
    }
}

/// Runs a tool and returns its output.
///
/// # Errors
/// The tool's standard error if it fails.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}; `cargo xtask setup` names what is needed to build"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

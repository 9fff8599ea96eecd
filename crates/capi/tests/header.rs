//! `tautline.h` is that of the source, and the shared library has its symbols.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    // The sources are named one by one, because cbindgen would else run cargo to find them.
    let mut builder = cbindgen::Builder::new().with_config(config).with_src(folder.join("src/codes.rs"));
    let files = [
        "types",
        "shapes",
        "general",
        "config",
        "tls",
        "settings",
        "ws",
        "callbacks",
        "owner",
        "request",
        "conn",
        "server",
        "client",
        "socket",
    ];
    for file in files {
        builder = builder.with_src(folder.join(format!("src/sys/{file}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let mut header = String::from_utf8(header).unwrap();
    // Rust's part of the comments.
    while let Some(start) = header.find("//\n// # Safety\n") {
        let comment: usize =
            header[start..].lines().take_while(|line| line.starts_with("//")).map(|line| line.len() + 1).sum();
        header.replace_range(start..start + comment, "");
    }
    let path = folder.join("include/tautline.h");
    if env::var_os("TAUTLINE_WRITE_HEADER").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(header == committed, "write it anew: TAUTLINE_WRITE_HEADER=1 cargo test -p tautline-capi --test header");
    let functions = header.lines().filter(|line| line.contains(" taut_") && line.contains('(')).count();
    assert!(functions >= 90, "{functions} functions");
}

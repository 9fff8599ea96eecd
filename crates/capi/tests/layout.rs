//! `tautline.json`, for bindings of other languages: sizes, offsets and values of `tautline.h`, as a C compiler has them.
#![cfg(target_pointer_width = "64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs, process};

/// The declarations of the header, by name.
#[derive(Default)]
struct Declared<'h> {
    constants: Vec<&'h str>,
    structs: Vec<Struct<'h>>,
}

struct Struct<'h> {
    name: &'h str,
    /// Types and names.
    fields: Vec<(String, &'h str)>,
}

impl<'h> Declared<'h> {
    fn read(header: &'h str) -> Self {
        let mut declared = Self::default();
        let mut open: Option<Struct<'h>> = None;
        for line in header.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            if let Some(name) = line.strip_prefix("typedef struct ").and_then(|rest| rest.strip_suffix(" {")) {
                open = Some(Struct { name, fields: Vec::new() });
            } else if line.starts_with("} ") {
                declared.structs.extend(open.take());
            } else if let (Some(open), Some(field)) = (&mut open, line.strip_suffix(';')) {
                let (field, array) = field.split_at(field.find('[').unwrap_or(field.len()));
                let name = field.rsplit([' ', '*']).next().unwrap();
                open.fields.push((format!("{}{array}", field.strip_suffix(name).unwrap().trim_end()), name));
            } else if let Some(define) = line.strip_prefix("#define ") {
                declared.constants.extend(define.split_once(' ').map(|(name, _)| name));
            }
        }
        declared
    }

    /// A program that prints the content of the JSON file.
    fn program(&self) -> String {
        let mut body = String::new();
        for (index, name) in self.constants.iter().enumerate() {
            let comma = if index + 1 < self.constants.len() { "," } else { "" };
            writeln!(body, "    VALUE({name}, \"{comma}\");").unwrap();
        }
        body.push_str("    puts(\"  },\\n  \\\"structs\\\": {\");\n");
        for (index, Struct { name, fields }) in self.structs.iter().enumerate() {
            writeln!(body, "    SHAPE({name});").unwrap();
            for (index, (of, field)) in fields.iter().enumerate() {
                let comma = if index + 1 < fields.len() { "," } else { "" };
                writeln!(body, "    FIELD({name}, {field}, \"{of}\", \"{comma}\");").unwrap();
            }
            let comma = if index + 1 < self.structs.len() { "," } else { "" };
            writeln!(body, "    puts(\"    ]}}{comma}\");").unwrap();
        }
        format!("{HEAD}{body}{TAIL}")
    }
}

/// A value that a reader of JSON may round, above 2^53, is a text.
const HEAD: &str = r#"#include <stddef.h>
#include <stdio.h>
#include "tautline.h"

#define VALUE(name, comma)                                                                 \
    if ((name) > 0 && (unsigned long long)(name) > 1ull << 53)                             \
        printf("    \"%s\": \"%llu\"%s\n", #name, (unsigned long long)(name), comma);      \
    else                                                                                   \
        printf("    \"%s\": %lld%s\n", #name, (long long)(name), comma)
#define SHAPE(type)                                                                        \
    printf("    \"%s\": {\"size\": %zu, \"align\": %zu, \"fields\": [\n", #type, sizeof(type), _Alignof(type))
#define FIELD(of, name, type, comma)                                                       \
    printf("      {\"name\": \"%s\", \"type\": \"%s\", \"offset\": %zu, \"size\": %zu}%s\n", #name, type, \
           offsetof(of, name), sizeof(((of *)0)->name), comma)

int main(void) {
    puts("{\n  \"about\": \"Sizes, offsets and values of tautline.h where pointers and long have 64 bits. docs/c.md "
         "explains it.\",\n  \"constants\": {");
"#;

const TAIL: &str = "    puts(\"  }\\n}\");\n    return 0;\n}\n";

#[test]
fn the_layout_for_other_languages_is_up_to_date() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let header = fs::read_to_string(include.join("tautline.h")).unwrap();
    let declared = Declared::read(&header);
    assert_eq!(declared.structs.len(), header.matches("\n} taut_").count());
    assert!(declared.structs.iter().all(|shape| !shape.fields.is_empty()) && declared.constants.len() > 80);
    let folder = env::temp_dir().join(format!("tautline-layout-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    fs::write(&source, declared.program()).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-std=c11").arg("-I").arg(&include).arg(&source).arg("-o").arg(&program);
    assert!(cc.status().unwrap().success());
    let layout = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let path = include.join("tautline.json");
    if env::var_os("TAUTLINE_WRITE_HEADER").is_some() {
        fs::write(&path, &layout).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(layout == committed, "write it anew: TAUTLINE_WRITE_HEADER=1 cargo test -p tautline-capi --test layout");
}

use super::{certificates, decode, encode, private_key, sections, trust_each};

const ONE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";

fn count(text: &str) -> usize {
    certificates(text.as_bytes(), "chain.pem").unwrap().len()
}

fn refused(text: &str) -> String {
    certificates(text.as_bytes(), "chain.pem").unwrap_err().to_string()
}

#[test]
fn every_certificate_is_read_wherever_its_marker_is() {
    assert_eq!(count(ONE), 1);
    assert_eq!(count(&format!("\u{feff}{ONE}\n{ONE}\n")), 2);
    assert_eq!(count(&format!("{ONE}{ONE}")), 2);
    assert_eq!(count(&format!("{ONE} {ONE}\r\n{ONE}\r{ONE}")), 4);
    assert_eq!(count(&format!("subject=CN = a\n\n  {ONE}\n# the issuer\n{ONE}")), 2);
    assert_eq!(count(&ONE.replace('\n', "\r\n")), 1);
    assert_eq!(count(&ONE.replace("CERTIFICATE", "X509 CERTIFICATE")), 1);
    let key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    assert_eq!(count(&format!("{key}{ONE}")), 1);
}

#[test]
fn a_certificate_that_cannot_be_read_is_named_by_its_line() {
    for (text, words) in [
        (format!("{ONE}\n-----BEGIN CERTIFICATE-----\nMAA="), "line 4: BEGIN CERTIFICATE without an END"),
        (format!("{ONE}\n----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"), "line 4: `----BEGIN"),
        (format!("-----BEGIN CERTIFICATE-----\nMAA=\n----END CERTIFICATE-----\n{ONE}"), "line 1: BEGIN"),
        (format!("{ONE}\nMAA=\n-----END CERTIFICATE-----\n"), "line 5: `-----END CERTIFICATE-----`"),
        (format!("{ONE}\n\u{2014}BEGIN CERTIFICATE\u{2014}\n"), "line 4: `"),
        (ONE.replace("END CERTIFICATE", "END PRIVATE KEY"), "END PRIVATE KEY ends BEGIN CERTIFICATE of line 1"),
        (ONE.replace("MAA=", "MA?="), "line 2: `?` is not base64"),
        (ONE.replace("MAA=", "MAA"), "line 3: the base64 is incomplete"),
        (ONE.replace("-----\nMAA", "---\nMAA"), "line 1: the marker"),
        (ONE.replace("CERTIFICATE", "TRUSTED CERTIFICATE"), "line 1: BEGIN TRUSTED CERTIFICATE"),
        (String::new(), "it is empty"),
        ("0\u{82}".to_owned(), "no certificate found"),
        (ONE.replace("CERTIFICATE", "PKCS7"), "line 1: BEGIN \"PKCS7\" is not read"),
    ] {
        let said = refused(&text);
        assert!(said.contains("chain.pem: ") && said.contains(words), "{text:?}: {said}");
        assert!(!said.contains("[4") && !said.contains("[6"), "markers are text: {said}");
    }
    let der = certificates(&[0x30, 0x82, 1, 0, 0x30], "chain.der").unwrap_err().to_string();
    assert!(der.contains("openssl x509 -inform DER"), "{der}");
    let wide: Vec<u8> = ONE.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide = certificates(&[b"\xff\xfe", &wide[..]].concat(), "chain.pem").unwrap_err().to_string();
    assert!(wide.contains("UTF-16"), "{wide}");
}

/// Damage at both ends, behind a good certificate, is no text that can be skipped.
#[test]
fn a_certificate_with_two_damaged_markers_is_not_lost() {
    let base64 = "MIIB".repeat(16);
    for bad in [
        ONE.replace(" CERTIFICATE", "\u{a0}CERTIFICATE"),
        ONE.to_lowercase(),
        ONE.replace(" CERTIFICATE", " certificate"),
        ONE.replace(" CERTIFICATE", "  CERTIFICATE"),
        ONE.replace("CERTIFICATE-", "CERTIFICATE -"),
        ONE.replace("CERTIFICATE", "CERTIFCATE"),
        ONE.replace("CERTIFICATE", "PKCS7"),
        ONE.replace("CERTIFICATE", "PKCS #7 SIGNED DATA"),
        ONE.replace("CERTIFICATE", "CMS"),
        ONE.replace("CERTIFICATE", "CETIFICATE").replace("MAA=", "MIIBADCCAQCgAwIBAg=="),
        ONE.replace("-----", "--"),
        ONE.replace("-----", "--").to_lowercase(),
        format!("* BEGIN *\n{base64}\n* END *"),
    ] {
        let text = format!("{ONE}\n{bad}\n{ONE}\n");
        let said = refused(&text);
        assert!(["line 4: ", "line 5: "].iter().any(|line| said.contains(line)), "{bad:?}: {said}");
        let mut trusted = 0;
        let unreadable = trust_each(text.as_bytes(), |_| {
            trusted += 1;
            true
        });
        assert_eq!((trusted, unreadable.len()), (2, 1), "{bad:?}: {unreadable:?}");
        assert!(!said.contains("MIIBMIIB"), "base64 may be a key's: {said}");
        assert!(said.contains(&unreadable[0].to_string()), "{unreadable:?}");
    }
}

#[test]
fn text_and_sections_of_other_kinds_are_skipped() {
    for text in [
        "subject=C = BE, CN = The END Certificate Authority\nissuer=CN = Begin",
        "Bag Attributes\n    friendlyName: certificate\n    localKeyID: 54 69 6D 65\nKey Attributes: <No Attributes>",
        "# the root certificate--valid to the end -- begin here\n# ca new --begin 2024 --end 2026 --endpoint a --key--cert",
        "=== My Root ===\nMII is how base64 of a certificate begins\n------------------------\nend",
        "# MIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIBMIIB",
    ] {
        assert_eq!(count(&format!("{text}\n{ONE}\n{text}\n{ONE}\n{text}")), 2, "{text}");
    }
    for label in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "PUBLIC KEY",
        "EC PARAMETERS",
        "X9.42 DH PARAMETERS",
        "CERTIFICATE REQUEST",
        "NEW CERTIFICATE REQUEST",
        "ATTRIBUTE CERTIFICATE",
        "X509 CRL",
    ] {
        let other = ONE.replace("CERTIFICATE", label);
        assert_eq!(count(&format!("{ONE}\n{other}\n{ONE}")), 2, "{label}");
    }
}

#[test]
fn keys_with_a_passphrase_name_the_command_that_removes_it() {
    let legacy = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMAA=\n-----END EC PRIVATE KEY-----\n";
    let pkcs8 = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for text in [legacy.to_owned(), legacy.replace("EC PRIV", "RSA PRIV"), pkcs8.to_owned()] {
        let said = private_key(text.as_bytes(), "key.pem").unwrap_err().to_string();
        assert!(said.contains("passphrase") && said.contains("openssl pkey -in"), "{said}");
    }
    let parameters = "-----BEGIN EC PARAMETERS-----\nMAA=\n-----END EC PARAMETERS-----\n";
    let key = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
    let read = private_key(format!("\u{feff}{parameters}{key}").as_bytes(), "key.pem").unwrap();
    assert_eq!((read.label.as_str(), read.line, &read.der[..]), ("EC PRIVATE KEY", 4, &[0x30, 0][..]));
    assert_eq!(&read.to_pem()[..], key.as_bytes());
    let said = private_key(key.replace("EC", "OPENSSH").as_bytes(), "key.pem").unwrap_err().to_string();
    assert!(said.contains("BEGIN OPENSSH PRIVATE KEY is no form"), "{said}");
    let said = private_key(ONE.as_bytes(), "key.pem").unwrap_err().to_string();
    assert!(said.contains("no private key found") && said.contains("it holds CERTIFICATE"), "{said}");
}

#[test]
fn reading_goes_on_behind_a_section_that_cannot_be_read() {
    let text = format!("{ONE}\n{}\n{ONE}\n----BEGIN CERTIFICATE-----\n{ONE}", ONE.replace("MAA=", "?"));
    let read: Vec<bool> = sections(text.as_bytes()).map(|section| section.is_ok()).collect();
    assert_eq!(read, [true, false, true, false, true]);
}

#[test]
fn base64_of_every_length_comes_back() {
    for len in 0..200_usize {
        let der: Vec<u8> = (0..len).map(|at| (at * 37 + len).to_le_bytes()[0]).collect();
        let mut text = Vec::new();
        encode(&der, &mut text);
        assert_eq!(*decode(&text).unwrap(), der);
        assert!(text.split(|&byte| byte == b'\n').all(|line| line.len() <= 64));
    }
}

/// A file of any bytes ends, with sections that are inside it.
#[test]
fn every_cut_of_a_file_is_read_to_its_end() {
    let text = format!("\u{feff}{ONE}{ONE}\n-----END X-----\n-----BEGIN -----\n----------BEGIN A-----END A-----{ONE}");
    for end in 0..text.len() {
        for start in [0, end / 2, end.saturating_sub(30)] {
            assert!(sections(&text.as_bytes()[start..end]).count() < 20);
        }
    }
}

use super::*;
use crate::plan::{Action, Certified, HashOf, HostSent, NoRoute, Wait};
use std::time::Duration;

const WHOLE: &str = r#"
listen = [":443"]
certificates = [{ cert = "cert.pem", key = "/etc/key.pem" }]

[[route]]
name = "site"
hosts = ["app.example", "*.app.example"]
to = "app"
host = "server"
request.set = { X-Edge = "1" }
request.remove = ["X-Debug"]
response.remove = ["Server"]
origins = ["https://app.example"]

[[route]]
hosts = ["app.example"]
path = "/api"
rewrite = "/v1"
to = "api"
allow = ["10.0.0.0/8"]
deny = ["10.0.0.7"]

[[route]]
redirect = { to = "https://app.example/*" }

[[route]]
path = "/health"
exact = true
answer = { status = 200, body = "well\n" }

[backend.app]
servers = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"]
drain = ["http://10.0.0.2:3000"]
balance = "least-connections"
sticky-cookie = "srv"
max-connections = 100
wait-queue = 20
wait-time = "1500ms"
failures = 5
failure-time = "20s"
connect-time = "2s"
tunnel-time = "2h"
check = { path = "/healthz", every = "3s", fall = 2 }

[backend.api]
servers = ["unix:/run/api.sock"]
hash = "cookie:user"
"#;

fn plan(text: &str) -> Result<Plan, Faults> {
    parse(Path::new("dir/taut.toml"), text, None, Instant::now())
}

/// The faults, each with its line.
fn faults(text: &str) -> Vec<String> {
    plan(text)
        .unwrap_err()
        .to_string()
        .lines()
        .map(|line| line.strip_prefix("dir/taut.toml:").unwrap().to_owned())
        .collect()
}

#[test]
fn a_whole_configuration_becomes_a_plan() {
    let plan = plan(WHOLE).unwrap();
    assert_eq!(plan.certificates[0].cert, Path::new("dir/cert.pem"));
    assert_eq!(plan.certificates[0].key, Path::new("/etc/key.pem"));
    let (site, path) = plan.route(Some("x.app.example"), "/a?b", None).unwrap();
    assert_eq!((site.name.as_str(), path.as_str(), path.query()), ("site", "/a", "?b"));
    let Action::Forward(forward) = &site.action else { panic!() };
    assert_eq!(forward.host, HostSent::Server);
    let app = &plan.backends[forward.backend];
    assert_eq!((app.name.as_str(), app.sticky.as_deref()), ("app", Some("srv")));
    assert_eq!(app.check.as_ref().unwrap().every, Duration::from_secs(3));
    assert_eq!(app.wait, Wait { most: 20, time: Duration::from_millis(1500) });
    assert_eq!((app.times.connect, app.times.tunnel), (Duration::from_secs(2), Duration::from_secs(7200)));
    let (api, path) = plan.route(Some("app.example"), "/api/x", Some("10.1.1.1".parse().unwrap())).unwrap();
    assert_eq!(api.path.rewrite(&path, "/v1"), "/v1/x");
    let Action::Forward(forward) = &api.action else { panic!() };
    assert_eq!(plan.backends[forward.backend].hash, Some(HashOf::Cookie("user".to_owned())));
}

#[test]
fn a_plan_refuses_what_has_no_route_and_sources_that_are_denied() {
    let plan = plan(WHOLE).unwrap();
    let route = |host: &str, target: &str, source: &str| {
        plan.route(Some(host), target, Some(source.parse().unwrap())).map(|(route, _)| route.name.clone())
    };
    assert_eq!(route("app.example", "/api", "10.0.0.7"), Err(NoRoute::Forbidden));
    assert_eq!(route("app.example", "/x/../%61pi", "192.0.2.1"), Err(NoRoute::Forbidden));
    assert_eq!(route("app.example", "/", "10.0.0.7"), Ok("site".to_owned()));
    assert!(matches!(route("a b", "/", "10.0.0.1"), Err(NoRoute::BadRequest(_))));
    assert!(matches!(route("app.example", "/%2f", "10.0.0.1"), Err(NoRoute::BadRequest(_))));
    let one = self::plan("[[route]]\nhosts = [\"a\"]\nanswer = { status = 200 }\n").unwrap();
    assert_eq!(one.route(Some("b"), "/", None).unwrap_err(), NoRoute::NotFound);
    let (fallback, path) = plan.route(None, "/a?b", None).unwrap();
    let Action::Redirect { to, status, .. } = &fallback.action else { panic!() };
    assert_eq!((Action::location(to, &path).as_str(), status.as_u16()), ("https://app.example/a?b", 308));
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    assert_eq!(faults("\nlisen = [\":1\"]\n"), ["2: there is no key \"lisen\": did you mean \"listen\"?"]);
    let said = faults("[[route]]\nto = \"a\"\nrewite = \"/\"\n");
    assert_eq!(said, ["3: there is no key \"rewite\": did you mean \"rewrite\"?"]);
    let said = faults("[backend.a]\nservers = [\"http://a\"]\nmax-connection = 1\n");
    assert_eq!(said, ["3: there is no key \"max-connection\": did you mean \"max-connections\"?"]);
    let said = faults("[backend.a]\nservers = [\"http://a\"]\nbalance = \"least-conections\"\n");
    assert_eq!(said, ["3: there is no value \"least-conections\": did you mean \"least-connections\"?"]);
}

#[test]
fn all_faults_are_reported_with_their_lines_and_remedies() {
    let said = faults(
        "[[route]]\nhosts = [\"a:80\"]\nto = \"ap\"\n\n[[route]]\npath = \"/x//y\"\nto = \"app\"\nhost = \"a b\"\n\n[[route]]\nto = \"app\"\nallow = [\"10\"]\n\
         \n[backend.app]\nservers = [\"127.0.0.1:1\", \"http://a\", \"http://a\"]\ndrain = [\"http://b\"]\nmax-connections = 0\n",
    );
    let expected = [
        (2, "without a port"),
        (3, "did you mean \"app\"?"),
        (6, "write \"/x/y\""),
        (8, "write client, server or a name"),
        (12, "10.0.0.0/8"),
        (15, "write http://HOST:PORT"),
        (15, "listed twice"),
        (16, "none of the servers"),
        (17, "from 1 on"),
    ];
    for (line, what) in expected {
        let found = said.iter().any(|fault| fault.starts_with(&format!("{line}: ")) && fault.contains(what));
        assert!(found, "line {line}, {what}: {said:#?}");
    }
}

#[test]
fn values_of_a_wrong_form_are_refused_with_their_line() {
    let backend = "[[route]]\nto = \"a\"\n[backend.a]\nservers = [\"http://a\"]\n";
    for (line, remedy) in [
        ("connect-time = \"5\"", "30s"),
        ("hash = \"adress\"", "\"address\""),
        ("hash = \"header:a b\"", "header:NAME"),
        ("sticky-cookie = \"a;b\"", "letters"),
        ("check = { path = \"x\" }", "begin with a slash"),
        ("check = { fall = 0 }", "from 1 on"),
        ("check = { path = \"/\" }", "only connect"),
        ("max-connections = \"many\"", "write a number without quotes"),
        ("wait-queue = 5", "add that key"),
        ("resolve-every = \"5\"", "30s"),
        ("wait-time = \"1s\"", "max-connections"),
        ("proxy-protocol = \"v3\"", "did you mean \"v1\"?"),
        ("idle-time = \"1s\"\nproxy-protocol = \"v2\"", "no effect with proxy-protocol"),
    ] {
        let backend = if remedy == "only connect" { backend.replace("http:", "https:") } else { backend.to_owned() };
        let said = faults(&format!("{backend}{line}\n"));
        assert!(said.len() == 1 && said[0].starts_with("5: ") && said[0].contains(remedy), "{line}: {said:?}");
    }
}

#[test]
fn an_address_without_a_port_is_refused_with_its_line() {
    let rest = "[[route]]\nto = \"a\"\n[backend.a]\nservers = [\"http://a\"]\n";
    for good in ["127.0.0.1:0", "[::1]:443", "name:8443", ":443", "unix:/run/a"] {
        assert!(plan(&format!("listen = [{good:?}]\n{rest}")).is_ok(), "{good}");
    }
    for (bad, remedy) in
        [("8443", "has no port"), ("a:b", "no port"), (":70000", "up to 65535"), ("unix:", "needs a path")]
    {
        let said = faults(&format!("\nlisten = [{bad:?}]\n{rest}"));
        assert!(said.len() == 1 && said[0].starts_with("2: ") && said[0].contains(remedy), "{bad}: {said:?}");
    }
}

#[test]
fn a_route_has_one_outcome() {
    let backend = "[backend.a]\nservers = [\"http://a\"]\n";
    for (route, remedy) in [
        ("path = \"/\"", "no outcome"),
        ("to = \"a\"\nanswer = { status = 200 }", "more than one outcome"),
        ("to = \"a\"\nfiles = \".\"", "more than one outcome"),
        ("files = \"no such folder\"", "cannot open the folder dir/no such folder"),
        ("files = \"/proc\"\nhost = \"server\"", "no effect"),
        ("answer = { status = 99 }", "200 to 599"),
        ("answer = { status = 200, body = \"\", file = \"x\" }", "one body"),
        ("answer = { status = 200, file = \"no such file\" }", "cannot read dir/no such file"),
        ("redirect = { to = \"//evil\" }", "write a path"),
        ("redirect = { to = \"/\", status = 200 }", "301"),
        ("redirect = { to = \"/\" }\nhost = \"server\"", "no effect"),
        ("redirect = { to = \"/\" }\nrequest.set = { A = \"b\" }", "request has no effect"),
        ("answer = { status = 200 }\nrequest.remove = [\"Cookie\"]", "request has no effect"),
        ("answer = { status = 200 }\nresponse.set = { Content-Length = \"1\" }", "the proxy writes"),
        ("files = \"/proc\"\nrequest.set = { A = \"b\" }", "request has no effect"),
        ("to = \"a\"\nrequest.set = { Host = \"x\" }", "the proxy writes host itself"),
        ("to = \"a\"\nrequest.set = { A = \"x\\ny\" }", "line ends"),
        ("to = \"a\"\nresponse.remove = [\"Transfer-Encoding\"]", "the proxy writes"),
        ("to = \"a\"\norigins = [\"a.example\"]", "https://a.example"),
    ] {
        let said = faults(&format!("[[route]]\n{route}\n{backend}"));
        assert!(said.len() == 1 && said[0].contains(remedy), "{route}: {said:?}");
    }
    assert!(faults("listen = [\":1\"]\n")[0].contains("no route"));
}

#[test]
fn two_routes_for_one_place_name_both_lines() {
    let said = faults(
        "[[route]]\nto = \"a\"\n[[route]]\nhosts = [\"*\"]\nto = \"a\"\n[backend.a]\nservers = [\"http://a\"]\n",
    );
    assert!(said[0].starts_with("3: ") && said[0].contains("that of line 1"), "{said:?}");
}

#[test]
fn a_path_with_a_fault_takes_the_place_of_no_other_route() {
    let said =
        faults("[[route]]\npath = \"api\"\nto = \"a\"\n[[route]]\nto = \"a\"\n[backend.a]\nservers = [\"http://a\"]\n");
    assert!(said.len() == 1 && said[0].starts_with("2: ") && said[0].contains("begin with a slash"), "{said:?}");
}

#[test]
fn errors_of_the_syntax_have_a_line() {
    assert!(faults("listen = [\":1\"\n\n[[route]]\n")[0].split(':').next().unwrap().parse::<usize>().is_ok());
    assert!(plan("listen = 5").unwrap_err().to_string().starts_with("dir/taut.toml:1: "));
}

#[test]
fn flags_make_the_same_plan_as_a_file() {
    let servers = ["http://127.0.0.1:3000".to_owned(), "unix:/run/b.sock".to_owned()];
    let plan = of_servers(&servers, None, Instant::now()).unwrap();
    assert_eq!(plan.backends[0].endpoints.len(), 2);
    assert!(plan.route(Some("any"), "/x", None).is_ok());
    let error = of_servers(&["3000".to_owned()], None, Instant::now()).unwrap_err();
    assert!(error.contains("write http://HOST:PORT"), "{error}");
}

#[test]
fn a_reload_keeps_the_health_of_servers_that_stay() {
    let before = plan(WHOLE).unwrap();
    before.backends[1].group.servers()[0].set_healthy(false);
    let after = parse(Path::new("x"), &WHOLE.replace("10.0.0.2", "10.0.0.3"), Some(&before), Instant::now()).unwrap();
    let health: Vec<bool> = after.backends[1].group.servers().iter().map(|server| server.is_healthy()).collect();
    assert_eq!(health, [false, true]);
}

#[test]
fn a_list_without_entries_is_not_taken_for_none() {
    let rest = "answer.status = 200\n";
    let said = faults(&format!("[[route]]\nallow = []\n{rest}[[route]]\npath = \"/x\"\nhosts = []\n{rest}"));
    assert!(said.len() == 2 && said[0].starts_with("2: allow = [] lets nobody in"), "{said:?}");
    assert!(said[1].starts_with("6: hosts = [] fits no request"), "{said:?}");
}

#[test]
fn authorities_of_clients_need_tls_and_keys_about_them_need_authorities() {
    let route = "[[route]]\nanswer = { status = 200 }\n";
    let with = plan(&format!(
        "client-ca = \"ca.pem\"\nclient-certificate = \"optional\"\n{route}client-certificate = \"required\"\n"
    ));
    let with = with.unwrap();
    assert_eq!(
        (with.client_ca.as_deref(), with.client_certificate),
        (Some(Path::new("dir/ca.pem")), Certified::Optional)
    );
    assert!(with.routes[0].needs_certificate);
    assert_eq!(plan(&format!("client-ca = \"ca.pem\"\n{route}")).unwrap().client_certificate, Certified::Required);
    let said = faults(&format!("plain = true\nclient-ca = \"ca.pem\"\n{route}"));
    assert!(said.len() == 1 && said[0].starts_with("2: plain = true"), "{said:?}");
    let said = faults(&format!("client-certificate = \"required\"\n{route}client-certificate = \"optional\"\n"));
    assert!(said[0].starts_with("1: ") && said[1].starts_with("4: "), "{said:?}");
    assert!(said.iter().all(|fault| fault.contains("client-ca")), "{said:?}");
}

#[test]
fn the_side_of_the_clients_has_limits_times_and_an_authority() {
    let text = "[[route]]\nanswer = { status = 200 }\n[client]\nhead-time = \"5s\"\nidle-time = \"2m\"\nsend-time = \"20s\"\n\
        [limits]\nconnections = 1000\nhandshakes = 100\nrequests = { per-second = 10, burst = 30 }\n\
        requests-of-network = { per-second = 100 }\n[acme]\nnames = [\"a.example\"]\nfolder = \"acme\"\nhttp = \":80\"\n";
    let plan = plan(text).unwrap();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let times = (plan.listener.head_time, plan.listener.idle_time, plan.listener.send_time);
    assert_eq!(times, (seconds(5), seconds(120), seconds(20)));
    assert_eq!((plan.listener.connections, plan.listener.handshakes), (Some(1000), Some(100)));
    assert_eq!(plan.limits.len(), 2);
    let acme = plan.acme.unwrap();
    assert_eq!((acme.names, acme.folder.as_deref()), (vec!["a.example".to_owned()], Some(Path::new("dir/acme"))));
    let route = "[[route]]\nanswer = { status = 200 }\n";
    for (text, remedy) in [
        ("[acme]\nnames = []\n", "4: a certificate has a name"),
        ("[acme]\nname = [\"a\"]\n", "4: there is no key \"name\": did you mean \"names\"?"),
        ("[limits]\nrequests = { per-second = 0 }\n", "4: 0 is too few"),
        ("[limits]\nconections = 1\n", "4: there is no key \"conections\": did you mean \"connections\"?"),
        ("[client]\nidle-time = \"5\"\n", "4: \"5\" is no time"),
    ] {
        let said = faults(&format!("{route}{text}"));
        assert!(said.len() == 1 && said[0].starts_with(remedy), "{text}: {said:?}");
    }
    let said = faults(&format!("plain = true\n{route}[acme]\nnames = [\"a.example\"]\n"));
    assert!(said[0].starts_with("4: [acme] orders the certificate"), "{said:?}");
}

#[test]
fn names_of_servers_are_looked_up_again_and_a_reload_keeps_their_addresses() {
    let text =
        |server: &str| format!("[[route]]\nto = \"a\"\n[backend.a]\nservers = [{server:?}]\nresolve-every = \"10s\"\n");
    let before = plan(&text("http://app.example:80")).unwrap();
    assert_eq!(before.backends[0].resolve_every, Some(Duration::from_secs(10)));
    before.backends[0].resolved[0].set(vec!["10.0.0.1:80".parse().unwrap()]);
    let after = parse(Path::new("x"), &text("http://app.example:80"), Some(&before), Instant::now()).unwrap();
    assert_eq!(after.backends[0].resolved[0].next().len(), 1);
    for address in ["http://10.0.0.1:80", "http://[::1]:80", "unix:/run/a.sock"] {
        let said = faults(&text(address));
        assert!(said.len() == 1 && said[0].starts_with("5: ") && said[0].contains("no server has a name"), "{said:?}");
    }
}

#[test]
fn http2_is_off_unless_it_is_asked_for_and_needs_tls() {
    let route = "[[route]]\nanswer = { status = 200 }\n";
    assert!(!plan(route).unwrap().http2 && plan(&format!("http2 = true\n{route}")).unwrap().http2);
    let said = faults(&format!("plain = true\nhttp2 = true\n{route}"));
    assert!(said.len() == 1 && said[0].starts_with("2: http2 = true needs TLS"), "{said:?}");
}

use super::page::Table;
use crate::serve::Front;
use serde_json::{Value, json};
use tautline_proxy::tally::{CLASSES, Figures, RouteFigures, ServerFigures};

/// Most rows of a table. A configuration may have thousands of routes.
const MOST: usize = 100;

/// The routes and servers of a proxy, with the rates since the last look.
pub(crate) struct FrontTables {
    front: Front,
    earlier: Figures,
}

impl FrontTables {
    pub(crate) fn new(front: Front) -> Self {
        Self { earlier: front.figures(), front }
    }

    /// The tables of the time since the last call, which was so many seconds ago.
    pub(crate) fn next(&mut self, seconds: f64) -> Vec<Table> {
        let now = self.front.figures();
        let tables = tables(&now, &self.earlier, seconds);
        self.earlier = now;
        tables
    }
}

fn tables(now: &Figures, earlier: &Figures, seconds: f64) -> Vec<Table> {
    let nobody = (RouteFigures::default(), ServerFigures::default());
    let rate = |now: u64, earlier: u64| now.saturating_sub(earlier) as f64 / seconds;
    let mut servers = Vec::new();
    for backend in &now.backends {
        let before = earlier.backends.iter().find(|before| before.name == backend.name);
        for server in &backend.servers {
            let before = before.and_then(|before| before.servers.iter().find(|before| before.name == server.name));
            let before = before.unwrap_or(&nobody.1);
            servers.push(vec![
                json!(backend.name),
                json!(server.name),
                json!(state(server)),
                json!(server.requests + server.connecting),
                json!(server.tunnels),
                json!(server.idle),
                json!(rate(sum(&server.statuses), sum(&before.statuses))),
                json!(rate(bad(&server.statuses), bad(&before.statuses))),
                json!(rate(server.received, before.received) / 1e6),
                json!(rate(server.sent, before.sent) / 1e6),
            ]);
        }
    }
    let routes = now.routes.iter().map(|route| {
        let before = earlier.routes.iter().find(|before| before.name == route.name).unwrap_or(&nobody.0);
        vec![
            json!(route.name),
            json!(rate(sum(&route.statuses), sum(&before.statuses))),
            json!(rate(route.statuses[4], before.statuses[4])),
            json!(rate(bad(&route.statuses), bad(&before.statuses))),
            json!(rate(route.received, before.received) / 1e6),
            json!(rate(route.sent, before.sent) / 1e6),
            json!(rate(messages(route), messages(before))),
        ]
    });
    let head =
        ["backend", "server", "state", "requests", "tunnels", "idle", "answers/s", "failed/s", "MB/s in", "MB/s out"];
    let of_routes = ["route", "answers/s", "4xx/s", "failed/s", "MB/s in", "MB/s out", "messages/s"];
    vec![
        Table { name: "Backends", head: head.to_vec(), rows: bounded(servers) },
        Table { name: "Routes", head: of_routes.to_vec(), rows: bounded(routes.collect()) },
    ]
}

/// The first rows, and how many there are beside them.
fn bounded(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let more = rows.len().saturating_sub(MOST);
    rows.truncate(MOST);
    if more > 0 {
        rows.push(vec![json!(format!("{more} more, at /metrics of --admin"))]);
    }
    rows
}

const fn state(server: &ServerFigures) -> &'static str {
    match (server.is_drained, server.is_healthy, server.is_out) {
        (_, false, _) => "unhealthy",
        (_, _, true) => "out",
        (true, ..) => "drained",
        _ => "up",
    }
}

fn sum(statuses: &[u64; CLASSES.len()]) -> u64 {
    statuses.iter().sum()
}

/// Messages both ways, of a route with `messages`.
const fn messages(route: &RouteFigures) -> u64 {
    route.messages_received + route.messages_sent
}

/// Statuses of failures, and no status.
const fn bad(statuses: &[u64; CLASSES.len()]) -> u64 {
    statuses[0] + statuses[5]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_proxy::tally::BackendFigures;

    #[test]
    fn rows_have_the_state_and_the_rates_since_the_last_look() {
        let server = ServerFigures { name: "http://a".to_owned(), is_healthy: true, tunnels: 3, ..Default::default() };
        let of = |server| Figures {
            routes: vec![RouteFigures { name: "r".to_owned(), statuses: [1, 0, 5, 0, 2, 0], ..Default::default() }],
            backends: vec![BackendFigures { name: "b".to_owned(), servers: vec![server], ..Default::default() }],
            ..Default::default()
        };
        let mut later = server.clone();
        (later.statuses, later.is_out, later.sent) = ([2, 0, 8, 0, 0, 0], true, 4_000_000);
        let tables = tables(&of(later), &of(server), 2.0);
        let rows: Vec<Value> = tables.iter().map(|table| json!(table.rows)).collect();
        assert_eq!(rows[0], json!([["b", "http://a", "out", 0, 3, 0, 5.0, 1.0, 0.0, 2.0]]));
        assert_eq!(rows[1], json!([["r", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]));
        for table in &tables {
            assert_eq!(table.head.len(), table.rows[0].len());
        }
    }

    #[test]
    fn a_table_has_an_end() {
        let rows = bounded(vec![vec![json!("r")]; MOST + 7]);
        assert_eq!((rows.len(), rows[MOST][0].as_str()), (MOST + 1, Some("7 more, at /metrics of --admin")));
    }
}

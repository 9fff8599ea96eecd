//! The topics of a hub, by the namespaces of its rules.

use super::page::Table;
use serde_json::{Value, json};
use tautline_hub::{Hub, NamespaceFigures};

/// The namespaces of a hub, with the rates since the last look.
pub(crate) struct HubTables {
    hub: Hub,
    earlier: Vec<NamespaceFigures>,
}

impl HubTables {
    pub(crate) fn new(hub: Hub) -> Self {
        Self { earlier: hub.namespaces(), hub }
    }

    /// The table of the time since the last call, which was so many seconds ago.
    pub(crate) fn next(&mut self, seconds: f64) -> Vec<Table> {
        let now = self.hub.namespaces();
        let rows = now.iter().map(|of| row(of, &self.earlier, seconds)).collect();
        self.earlier = now;
        let head = [
            "namespace",
            "topics",
            "subscribers",
            "published/s",
            "delivered/s",
            "dropped/s",
            "left out/s",
            "history/s",
        ];
        vec![Table { name: "Topics", head: head.to_vec(), rows }]
    }
}

fn row(now: &NamespaceFigures, earlier: &[NamespaceFigures], seconds: f64) -> Vec<Value> {
    let before = earlier.iter().find(|before| before.name == now.name);
    let rate = |of: fn(&NamespaceFigures) -> u64| {
        // A namespace that a reload has added has no rate yet.
        json!(before.map_or(0.0, |before| of(now).saturating_sub(of(before)) as f64 / seconds))
    };
    vec![
        json!(&*now.name),
        json!(now.topics),
        json!(now.subscribers),
        rate(|of| of.publications),
        rate(|of| of.deliveries),
        rate(|of| of.drops),
        rate(|of| of.left_out),
        rate(|of| of.history),
    ]
}

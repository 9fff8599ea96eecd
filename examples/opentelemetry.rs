//! Traces of an echo server in OpenTelemetry: a span for each connection, below the span of the client that opened it.
//!
//! The exporter keeps spans in memory and prints them. For a collector, take the one of the crate `opentelemetry-otlp`:
//! nothing else changes.
//!
//! ```text
//! cargo run --example opentelemetry --features tracing
//! ```

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::error::Error;
use std::time::{Duration, Instant};
use tautline::http::{HeaderMap, HeaderValue, header::HeaderName};
use tautline::{
    ClientConfig, CloseCode, Config, Conn, Handler, Message, Outgoing, Server, Socket, Target, Traced, http,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        // An event in the span of the connection.
        tracing::info!(bytes = message.data().len(), "echo");
        conn.send(Outgoing::from(&message));
    }
}

/// The headers of a request, for propagators.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// Makes the connection's span a child of the client's, which the header `traceparent` names.
fn take_parent(span: &Span, request: &http::Request<()>) {
    let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
    if let Err(error) = span.set_parent(parent) {
        tracing::warn!("a span has no parent: {error}");
    }
}

/// Serves one client, whose request is part of the trace `trace`, and returns the spans of the server.
fn serve_one(trace: &str) -> Result<Vec<SpanData>, Box<dyn Error>> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("echo"));
    // Lines of the crate `log` become events too. Layers for them and for metrics can be added here.
    tracing_subscriber::registry().with(spans).try_init()?;

    let server = Server::plain().listen("127.0.0.1:0".parse()?);
    let server = server.start(|_shard| Traced::new(Echo).on_span(take_parent))?;
    let mut target = Target::new(&format!("ws://{}/orders?token=secret", server.addresses()[0]))?;
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    target.headers.insert("traceparent", HeaderValue::try_from(parent)?);
    let mut socket = Socket::connect(target, ClientConfig::default(), Config::default())?;
    for word in ["one", "two"] {
        socket.text(word)?;
        socket.receive()?;
    }
    socket.close(CloseCode::NORMAL, "")?;
    let end = Instant::now() + Duration::from_secs(20);
    while exporter.get_finished_spans()?.is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(1));
    server.join()?;
    let spans = exporter.get_finished_spans()?;
    provider.shutdown()?;
    Ok(spans)
}

fn main() -> Result<(), Box<dyn Error>> {
    for span in serve_one("4bf92f3577b34da6a3ce929d0e0e4736")? {
        println!("{} in the trace {}, with {} events", span.name, span.span_context.trace_id(), span.events.len());
        for attribute in &span.attributes {
            println!("  {} = {}", attribute.key, attribute.value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::SpanKind;

    #[test]
    fn a_connection_is_a_span_below_the_clients() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let spans = serve_one(trace).unwrap();
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((span.name.as_ref(), &span.span_kind), ("websocket", &SpanKind::Server));
        assert_eq!(span.span_context.trace_id().to_string(), trace);
        assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
        let attribute = |key: &str| {
            let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
            found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
        };
        assert_eq!(attribute("url.path"), "/orders");
        assert!(!format!("{span:?}").contains("secret"), "the query may have a token: {span:?}");
        assert_eq!(
            (attribute("websocket.close_code"), attribute("websocket.cause")),
            ("1000".into(), "closed by the peer".into())
        );
        assert!(attribute("network.peer.address").starts_with("127.0.0.1:"), "{:?}", span.attributes);
        assert_eq!(span.events.iter().filter(|event| event.name == "echo").count(), 2);
    }
}

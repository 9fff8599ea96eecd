//! Answers of NATS that no wait changes: only an operator does.

use async_nats::jetstream;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use jetstream::ErrorCode;
use std::error::Error;
use tautline_hub::Kind;

/// The thing that NATS refuses.
pub(crate) const CONNECTION: &str = "connection";

pub(crate) const fn stream(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Latest) { "stream of latest values" } else { "stream of history" }
}

pub(crate) const fn messages(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Latest) { "latest values" } else { "history" }
}

/// Why a stream is not made, if a wait does not help.
pub(crate) fn of_stream(error: &CreateStreamError) -> Option<String> {
    match error.kind() {
        CreateStreamErrorKind::JetStream(error) => of_answer(&error),
        CreateStreamErrorKind::JetStreamUnavailable => {
            Some("JetStream does not answer: turn it on at the NATS server (nats-server --jetstream)".to_owned())
        }
        _ => None,
    }
}

/// Why a message is not stored, if a wait does not help.
pub(crate) fn of_message(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref::<jetstream::Error>() {
        Some(answer) => of_answer(answer),
        None => of_message(error.source()?),
    }
}

fn of_answer(error: &jetstream::Error) -> Option<String> {
    let remedy = match error.error_code() {
        // Clusters that start or elect a leader say so, and a stream that is gone is made again.
        ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_ACTIVE
        | ErrorCode::CLUSTER_NOT_ASSIGNED
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::CLUSTER_INCOMPLETE
        | ErrorCode::RAFT_GENERAL
        | ErrorCode::STREAM_OFFLINE
        | ErrorCode::STREAM_MOVE_IN_PROGRESS
        | ErrorCode::STREAM_NOT_FOUND => return None,
        ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED => {
            "lower Retention::bytes (taut serve: --broker-size), or give JetStream more room; each of two streams takes that size"
        }
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED | ErrorCode::CLUSTER_NO_PEERS | ErrorCode::CLUSTER_REQUIRED => {
            "lower Retention::replicas (taut serve: --broker-replicas), or add servers to the cluster"
        }
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            "turn JetStream on at the NATS server, for this account"
        }
        ErrorCode::STREAM_NAME_EXIST | ErrorCode::STREAM_SUBJECT_OVERLAP => {
            "another stream has its name or subjects: delete that, or take another NatsConfig::prefix"
        }
        _ => "look at the log of the NATS server",
    };
    Some(format!("{error}: {remedy}"))
}

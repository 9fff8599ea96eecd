use crate::error::Error;
use crate::message::Message;
use crate::socket::WebSocket;
use futures_core::Stream;
use futures_sink::Sink;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tautline_ws::CloseCode;
use tokio::io::{AsyncRead, AsyncWrite};

/// The messages, each with its own memory. The stream ends as [`recv`](WebSocket::recv) does.
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for WebSocket<T> {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.poll_message(cx)).map(|message| message.map(|()| self.message())).transpose())
    }
}

/// Closing sends a close frame with code 1000, and waits as [`close`](WebSocket::close) does.
impl<T: AsyncRead + AsyncWrite + Unpin> Sink<Message> for WebSocket<T> {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_full() { self.poll_flush_all(cx) } else { Poll::Ready(Ok(())) }
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        self.feed(&message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_flush_all(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.begin_close(CloseCode::NORMAL, "")?;
        while ready!(self.poll_message(cx))?.is_some() {}
        Poll::Ready(Ok(()))
    }
}

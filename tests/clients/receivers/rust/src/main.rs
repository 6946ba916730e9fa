//! Receives events with the Rust SDK. Output: tests/clients/receivers.py.

use axum::{Router, extract::OriginalUri, http::StatusCode};
use cloudevents::{AttributesReader, Data, Event};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn decode(event: &Event, url: &str) -> Result<Value, Failure> {
    let data = match event.data().ok_or("no data")? {
        Data::Json(data) => data.clone(),
        Data::String(text) => serde_json::from_str(text)?,
        Data::Binary(bytes) => serde_json::from_slice(bytes)?,
    };
    Ok(json!({
        "id": event.id(),
        "source": event.source(),
        "type": event.ty(),
        "subject": event.subject(),
        "millis": event.time().ok_or("no time")?.timestamp_millis(),
        "datacontenttype": event.datacontenttype(),
        "group": event.extension("group").map(ToString::to_string),
        "bodytype": event.extension("bodytype").map(ToString::to_string),
        "data": data,
        "url": url,
    }))
}

/// The SDK responds to what is not an event by itself.
async fn receive(OriginalUri(url): OriginalUri, event: Event) -> StatusCode {
    let (decoded, status) = match decode(&event, &url.to_string()) {
        Ok(decoded) => (decoded, StatusCode::OK),
        Err(error) => (json!({"error": error.to_string()}), StatusCode::BAD_REQUEST),
    };
    println!("{decoded}");
    status
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("port {}", listener.local_addr()?.port());
    axum::serve(listener, Router::new().fallback(receive)).await?;
    Ok(())
}

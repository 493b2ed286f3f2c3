//! The gRPC messages and services that inflight speaks with other systems.
//!
//! The code is generated from `proto/` and committed, so that a build needs no `protoc` and runs no
//! generator; `tests/generated.rs` compares the two. Nothing is decided here.

/// KEDA's external scaler.
#[expect(
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated code"
)]
pub mod externalscaler {
    include!("generated/externalscaler.rs");
}

/// Envoy's question before it lets a request pass.
#[expect(
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated code"
)]
pub mod ext_authz {
    include!("generated/envoy.service.auth.v3.rs");
}

/// The gRPC health checking protocol.
#[expect(
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated code"
)]
pub mod health {
    include!("generated/grpc.health.v1.rs");
}

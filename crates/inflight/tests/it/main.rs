//! The one integration binary: each module tests one part of the product from outside.

mod api;

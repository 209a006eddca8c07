//! What is written and read again.

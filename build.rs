//! Compiles `proto/` with protox: no system protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    // The PMIx library is to call appmix's own accept (src/os/own_users_only.rs).
    println!("cargo:rustc-link-arg-bin=appmix=-Wl,--export-dynamic-symbol=accept");
    let files = [
        "proto/psched.proto",
        "proto/node.proto",
        "proto/attach.proto",
        "proto/login.proto",
        "proto/peers.proto",
        "proto/door.proto",
        "proto/shepherd.proto",
        "proto/appmix.proto",
        "proto/store.proto",
    ];
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_files(files)?;
    let descriptors = compiler.file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("psched.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().bytes(".psched.v1").compile_fds(descriptors)?;

    // What CRIU is told is nobody's API but CRIU's: apart from the rest, which clients can ask for.
    let mut criu = protox::Compiler::new(["proto"])?;
    criu.include_source_info(true).open_files(["proto/criu.proto"])?;
    tonic_prost_build::configure().compile_fds(criu.file_descriptor_set())?;
    Ok(())
}

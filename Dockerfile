# The program alone, for `portcullis serve` in a cluster.
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p portcullis --target-dir /target

# Debian's C library and certificate authorities, no shell; its user is 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /target/release/portcullis /usr/bin/portcullis
USER 65532:65532
EXPOSE 9695
ENTRYPOINT ["/usr/bin/portcullis"]
CMD ["serve"]

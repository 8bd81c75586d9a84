"""What schemathesis is taught: media types of this project that are others by another name."""

import schemathesis

schemathesis.serializer.alias("application/macaroon-request", "application/json")
schemathesis.serializer.alias("application/partial-upload", "application/octet-stream")

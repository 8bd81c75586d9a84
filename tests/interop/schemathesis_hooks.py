"""What schemathesis is taught: media types of this project that are others by another name, and that a text of a response
that begins as a URL and is none is no link."""

import schemathesis
from schemathesis.engine import observations

path_of = observations._same_origin_path


def path_if_url(value, origin):
    try:
        return path_of(value, origin)
    except ValueError:
        return None


observations._same_origin_path = path_if_url

schemathesis.serializer.alias("application/macaroon-request", "application/json")
schemathesis.serializer.alias("application/partial-upload", "application/octet-stream")

# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What pagedecode raises beside Python's own ValueError, TypeError and RuntimeError."""


class Unsupported(ValueError, NotImplementedError):
    """Sound arguments that the backend of the call cannot handle; the message says what it can."""

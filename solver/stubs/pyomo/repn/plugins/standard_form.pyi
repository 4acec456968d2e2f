from typing import Any

LinearStandardFormCompiler: Any

def __getattr__(name: str) -> Any: ...

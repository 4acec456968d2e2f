from typing import Any

class ConcreteModel:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

Binary: Any
Constraint: Any
ConstraintList: Any
NonNegativeIntegers: Any
NonNegativeReals: Any
Objective: Any
Reals: Any
UnitInterval: Any
Var: Any
VarList: Any
is_potentially_variable: Any
minimize: Any

# The rest, one import deep; what is passed on by another module has to be named above.
def __getattr__(name: str) -> Any: ...

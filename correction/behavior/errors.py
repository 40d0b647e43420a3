"""What is said when a behaviour request cannot be decided as somebody wants."""


class BehaviorError(ValueError):
    """A decision that is not possible; names what is allowed. Nothing was changed."""


class TraitChangedSince(BehaviorError):
    """The trait is not what the request made of it: taking it back would lose what came after."""

"""Message classes of the .proto files, made when they are imported, from descriptors that were compiled at build time.

Modules that protoc generates demand a protobuf at least as new as protoc, and at most one major version newer. In the
environment of a training the version is somebody else's choice; serialized descriptors and the public functions that
turn them into classes are the same from protobuf 4.25 to 7; 4.22 to 4.24 have them, too, but crash where the class of a
nested message is needed that nobody has held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

# A pool of our own: in the default one, a framework may have messages of the same name.
_POOL = DescriptorPool()


def define_messages(descriptor: bytes, module: dict[str, Any]) -> None:
    """Define the message classes of a .proto file; those that it imports must have been defined before.

    Parameters
    ----------
    descriptor : bytes
        A serialized ``FileDescriptorProto``.
    module : dict
        The namespace that receives the classes, by their names, and ``DESCRIPTOR``.
    """
    _POOL.AddSerializedFile(descriptor)
    file = _POOL.FindFileByName(module["PROTO"])
    module["DESCRIPTOR"] = file
    for name, message in file.message_types_by_name.items():
        module[name] = _class_of(message)


def _class_of(message: Descriptor) -> type[Message]:
    """Return the class of a message, with those of the messages nested in it as attributes."""
    made = GetMessageClass(message)
    for nested in message.nested_types:
        # protobuf in pure Python, which a variable can ask for, leaves them out.
        if not hasattr(made, nested.name):
            setattr(made, nested.name, _class_of(nested))
    return made

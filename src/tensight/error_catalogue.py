"""The codes of all errors, with their meanings and advice.

`TensightError.code` is one of them, and so is ``code`` in a response of the HTTP API. The table in
``docs/reference/errors.md`` is generated from this one (`make api`), and a test compares it with the code.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class CataloguedError(NamedTuple):
    """The meaning of an error code.

    Attributes
    ----------
    code : str
        Lower case, with hyphens. It is never changed or reused.
    raised_as : str
        Name of the class that Python code raises.
    meaning : str
        What went wrong, in a sentence.
    advice : str
        What to do, in a sentence.
    """

    code: str
    raised_as: str
    meaning: str
    advice: str


_CATALOGUE = (
    # Input
    CataloguedError(
        "input-invalid",
        "InputError",
        "An argument, option or field has an invalid value.",
        "Correct it; the message lists the valid values.",
    ),
    CataloguedError(
        "condition-unknown",
        "InputError",
        "No condition has this id or abbreviation, here or in the agent of the training.",
        "Use one that the message lists, or install the same version in the training and on the server.",
    ),
    CataloguedError(
        "node-unknown",
        "NotFoundError",
        "No node has this name, or the name is ambiguous. Outside of sessions it is an `InputError`.",
        "Search the nodes; where there are similar names, `tensight show` names them.",
    ),
    CataloguedError(
        "range-invalid",
        "InputError",
        "The requested bytes are outside the file.",
        "Request bytes within the file; `Content-Range` has its size.",
    ),
    CataloguedError(
        "configuration-invalid",
        "ConfigurationError",
        "The configuration of a search is invalid.",
        "Correct the file; the message names the line.",
    ),
    CataloguedError(
        "package-missing",
        "InputError",
        "A Python package is not installed that this needs. For a dump at a URL it is a `DumpError`.",
        "Run the `pip install` command of the message.",
    ),
    # Files at rest
    CataloguedError(
        "file-missing",
        "MissingFileError",
        "The file or folder does not exist.",
        "Check the path.",
    ),
    CataloguedError(
        "dump-unreadable",
        "DumpError",
        "A folder is not a dump, or a dump or a file in it cannot be read.",
        "Pass the folder that contains the ranks; write a damaged dump again.",
    ),
    CataloguedError(
        "dump-ambiguous",
        "DumpError",
        "A folder contains several dumps.",
        "Pass one of those that the message lists.",
    ),
    CataloguedError(
        "graph-unreadable",
        "GraphError",
        "A graph file is damaged, empty, too large, or not a graph file.",
        "Write the dump again.",
    ),
    CataloguedError(
        "worker-lost",
        "LostTaskError",
        "The process or machine that reads a rank was lost several times, as when its memory does not suffice.",
        "Read with fewer workers, or on a machine with more memory; the other ranks are not affected.",
    ),
    CataloguedError(
        "tensor-unreadable",
        "TensorFileError",
        "The file of one tensor is damaged or has an unknown format.",
        "Leave this tensor out; the rest of the dump can be read.",
    ),
    CataloguedError(
        "checkpoint-unreadable",
        "CheckpointError",
        "A checkpoint is damaged, too large, or has an unknown format.",
        "Save it again; the reference of `tensight compare checkpoints` lists the supported formats.",
    ),
    CataloguedError(
        "checkpoint-refused",
        "CheckpointError",
        "Loading the checkpoint would execute code. Nothing was executed.",
        "Save only its weights (`torch.save(model.state_dict(), …)`), and do not trust its source.",
    ),
    CataloguedError(
        "curve-unreadable",
        "CurveError",
        "A log or an event file cannot be read.",
        "Pass a file of one training.",
    ),
    CataloguedError(
        "loss-not-found",
        "CurveError",
        "A log, event file or recording contains no loss, or not the requested one.",
        "Choose it with `--column` or `--pattern`.",
    ),
    CataloguedError(
        "search-unreadable",
        "StudyStorageError",
        "The database of a search cannot be read, or contains another search.",
        "Check `storage` and `name` in the configuration of the search.",
    ),
    # Sessions
    CataloguedError(
        "not-found",
        "NotFoundError",
        "The path, rank, graph, step, input, output, comparison or file does not exist.",
        "List the existing ones; the message says how.",
    ),
    CataloguedError(
        "session-unknown",
        "NotFoundError",
        "The session does not exist, or no longer exists.",
        "List the sessions, or open the dump again.",
    ),
    CataloguedError(
        "dump-unknown",
        "NotFoundError",
        "No dump or recorded run below the base directory has this name.",
        "List the dumps; `refresh` searches for new ones.",
    ),
    CataloguedError(
        "watchpoint-unknown",
        "NotFoundError",
        "There is no watchpoint with this number.",
        "List the watchpoints; another client may have deleted it.",
    ),
    CataloguedError(
        "wrong-state",
        "StateError",
        "The session, the comparison or the server cannot do this in its present state.",
        "The message names the required state.",
    ),
    CataloguedError(
        "not-paused",
        "StateError",
        "This is possible only while the session is paused.",
        "Pause it, or wait until it has stopped, and try again.",
    ),
    CataloguedError(
        "session-closed",
        "StateError",
        "The session was closed, or its dump could not be opened.",
        "Open the dump again.",
    ),
    CataloguedError(
        "training-ended",
        "StateError",
        "The training is no longer attached.",
        "Open its recorded run.",
    ),
    CataloguedError(
        "end-reached",
        "StateError",
        "There is no step or operator before the first or after the last.",
        "End the loop, or step in the other direction.",
    ),
    CataloguedError(
        "unsupported",
        "StateError",
        "Sessions of this kind do not support this.",
        "Check `capabilities` first.",
    ),
    CataloguedError(
        "graph-too-large",
        "StateError",
        "The graph has more nodes than the server draws.",
        "List or search its nodes, or start the server with a larger `--max-graph-node-size`.",
    ),
    CataloguedError(
        "limit-exceeded",
        "LimitError",
        "A limit of the server is reached: sessions, subscribers, memory, sizes.",
        "Close unused sessions or connections and try again, or start the server with a higher limit.",
    ),
    CataloguedError(
        "value-unavailable",
        "UnavailableError",
        "The tensor exists, but its value at this step was not kept or not recorded.",
        "Inspect another step, or record values (`record`, or a dump).",
    ),
    CataloguedError(
        "statistics-only",
        "UnavailableError",
        "Only statistics of the tensor were recorded, no values.",
        "Use its statistics instead.",
    ),
    CataloguedError(
        "training-silent",
        "UnavailableError",
        "The training process did not answer in time, or its connection broke.",
        "Try again; it may be in a long operator.",
    ),
    CataloguedError(
        "storage-failed",
        "StorageError",
        "The workspace, the run folder or the log cannot be written or read: disk full, no permission, damaged.",
        "Make room, or choose another folder.",
    ),
    CataloguedError(
        "message-invalid",
        "WireError",
        "A training process and the server use incompatible protocols, or a message is malformed.",
        "Install the same version of Tensight on both sides.",
    ),
    # The server and its clients
    CataloguedError(
        "unauthorized",
        "AccessError",
        "The request has no access token, or an invalid one.",
        "Send the token; the server prints the path of its file when it starts.",
    ),
    CataloguedError(
        "forbidden",
        "AccessError",
        "The request comes from another page, or is addressed to another host.",
        "Use an address of the server; see `--allowed-host`.",
    ),
    CataloguedError(
        "certificate-untrusted",
        "AccessError",
        "The server's certificate is not trusted.",
        "Pass the certificate's file, or that of its authority (`verify=`).",
    ),
    CataloguedError(
        "content-type-invalid",
        "InputError",
        "The body of a request is not declared as JSON.",
        "Send `Content-Type: application/json`.",
    ),
    CataloguedError(
        "body-too-large",
        "LimitError",
        "The body of a request exceeds the server's limit.",
        "Send less data per request.",
    ),
    CataloguedError(
        "method-invalid",
        "InputError",
        "The path of a request exists, but does not support this method.",
        "Use one of the methods in the `Allow` header.",
    ),
    CataloguedError(
        "server-failed",
        "ServerError",
        "The server encountered an internal error.",
        "See the server's log, and report the error.",
    ),
    CataloguedError(
        "answer-unreadable",
        "ServerError",
        "The address does not belong to a Tensight server, or the server's version is incompatible with this client.",
        "Check the address, or install the server's version.",
    ),
    CataloguedError(
        "server-unreachable",
        "UnreachableError",
        "No server responds at this address, or the connection was lost.",
        "Start one (`tensight start`), or pass the address that it printed.",
    ),
    CataloguedError(
        "timed-out",
        "WaitError",
        "The awaited event did not occur in time.",
        "Wait longer, or check the state of the session.",
    ),
    # Commands
    CataloguedError(
        "port-unavailable",
        "PortError",
        "The server cannot listen on a port or host.",
        "End the process that uses the port, or choose another port.",
    ),
    CataloguedError(
        "workspace-occupied",
        "OccupiedError",
        "Another server uses the workspace.",
        "Use that server (the message contains its address), stop it, or choose another workspace.",
    ),
    CataloguedError(
        "server-not-started",
        "StartError",
        "A server in the background ended before it was ready.",
        "Read its output.",
    ),
    CataloguedError(
        "training-failed",
        "TrainingFailedError",
        "The training of `tensight demo` ended too early.",
        "Read its output; often PyTorch is missing.",
    ),
    CataloguedError(
        "installation-mixed",
        "TensightError",
        "`tensight` and `tensight-agent` are installed over each other.",
        "Uninstall both, then install one.",
    ),
    CataloguedError(
        "error",
        "TensightError",
        "An error without a code of its own.",
        "Read the message.",
    ),
)

CATALOGUE: Mapping[str, CataloguedError] = MappingProxyType({error.code: error for error in _CATALOGUE})
"""All errors by code, in the order of the reference."""

"""The codes of all errors, for programs: what each means, and what to do.

`TensightError.code` is one of them, and so is ``code`` in an answer of the HTTP API. The table in
``docs/reference/errors.md`` is made of this one (`make api`), and a test holds it against the code.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class CataloguedError(NamedTuple):
    """What a code stands for.

    Attributes
    ----------
    code : str
        Lower case, with hyphens. It is never changed, and never given to another thing.
    raised_as : str
        Name of the class with which Python code meets it.
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
        "An argument, option or field has a value that cannot be.",
        "Correct it; the message says what is possible.",
    ),
    CataloguedError(
        "condition-unknown",
        "InputError",
        "No condition has this id or abbreviation, here or in the agent of the training.",
        "Take one of `tensight conditions`, or install the same version in the training and on the server.",
    ),
    CataloguedError(
        "node-unknown",
        "NotFoundError",
        "No node has this name, or several may be meant. Outside of sessions it is an `InputError`.",
        "Search the nodes; the message names similar ones.",
    ),
    CataloguedError(
        "range-invalid",
        "InputError",
        "The bytes that a request asks for lie outside of the file.",
        "Ask for bytes within it; `Content-Range` has its size.",
    ),
    CataloguedError(
        "configuration-invalid",
        "ConfigurationError",
        "The configuration of a search cannot be used.",
        "Correct the file; the message has the line.",
    ),
    # Files at rest
    CataloguedError(
        "file-missing",
        "MissingFileError",
        "There is no such file or folder.",
        "Check the path.",
    ),
    CataloguedError(
        "dump-unreadable",
        "DumpError",
        "A folder is no dump, or a dump or a file in it cannot be read.",
        "Name the folder that holds the ranks; of a damaged dump, write it again.",
    ),
    CataloguedError(
        "dump-ambiguous",
        "DumpError",
        "A folder holds several dumps.",
        "Name one of those that the message lists.",
    ),
    CataloguedError(
        "graph-unreadable",
        "GraphError",
        "A graph file is damaged, empty, too large, or none.",
        "Write the dump again.",
    ),
    CataloguedError(
        "tensor-unreadable",
        "TensorFileError",
        "The file of one tensor is damaged, or of an unknown format.",
        "Leave this tensor out; the rest of the dump can be read.",
    ),
    CataloguedError(
        "checkpoint-unreadable",
        "CheckpointError",
        "A checkpoint is damaged, too large, or of an unknown format.",
        "Save it again; the formats that are read are in the reference of `tensight compare checkpoints`.",
    ),
    CataloguedError(
        "checkpoint-refused",
        "CheckpointError",
        "Loading the checkpoint would run code; nothing was run.",
        "Save its weights alone (`torch.save(model.state_dict(), …)`), and distrust where it came from.",
    ),
    CataloguedError(
        "curve-unreadable",
        "CurveError",
        "A log or an event file cannot be read.",
        "Name a file of one training.",
    ),
    CataloguedError(
        "loss-not-found",
        "CurveError",
        "A log, an event file or a recording was read and holds no loss, or not the one that was named.",
        "Choose it with `--column` or `--pattern`.",
    ),
    CataloguedError(
        "search-unreadable",
        "StudyStorageError",
        "The database of a search cannot be read, or holds another search.",
        "Check `storage` and `name` in the configuration of the search.",
    ),
    # Sessions
    CataloguedError(
        "not-found",
        "NotFoundError",
        "There is no such path, rank, graph, step, input, output, comparison or file.",
        "List what there is; the message says how.",
    ),
    CataloguedError(
        "session-unknown",
        "NotFoundError",
        "There is no such session, or it is there no more.",
        "List the sessions, or open the dump again.",
    ),
    CataloguedError(
        "dump-unknown",
        "NotFoundError",
        "No dump or recorded run below the base directory has this name.",
        "List the dumps; `refresh` looks for new ones.",
    ),
    CataloguedError(
        "watchpoint-unknown",
        "NotFoundError",
        "There is no watchpoint with this number.",
        "List the watchpoints; somebody else may have deleted it.",
    ),
    CataloguedError(
        "wrong-state",
        "StateError",
        "The session, the comparison or the server cannot do this now.",
        "Read the message; it says in which state it can.",
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
        "The training is not attached any more.",
        "Open its recorded run.",
    ),
    CataloguedError(
        "end-reached",
        "StateError",
        "There is no step or operator before the first, or after the last.",
        "End the loop, or go the other way.",
    ),
    CataloguedError(
        "unsupported",
        "StateError",
        "A session of this kind can never do this.",
        "Ask for its `capabilities` first.",
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
        "A bound of the server is reached: sessions, subscribers, memory, sizes.",
        "Close what is not needed and try again, or start the server with a larger bound.",
    ),
    CataloguedError(
        "value-unavailable",
        "UnavailableError",
        "The tensor is known, and its value at this step was not kept or not recorded.",
        "Look at another step, or record values (`record`, or a dump of them).",
    ),
    CataloguedError(
        "statistics-only",
        "UnavailableError",
        "Only statistics of the tensor were recorded; there are no values.",
        "Ask for its statistics instead.",
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
        "A training process and the server do not understand each other.",
        "Install the same version of Tensight on both sides.",
    ),
    # The server and its clients
    CataloguedError(
        "unauthorized",
        "AccessError",
        "The request has no access token, or a wrong one.",
        "Send the token; the server names its file when it starts.",
    ),
    CataloguedError(
        "forbidden",
        "AccessError",
        "The request comes from another page, or is for another host.",
        "Use an address of the server; see `--allowed-host`.",
    ),
    CataloguedError(
        "certificate-untrusted",
        "AccessError",
        "The certificate of the server is not trusted.",
        "Name the file with it, or with that of its authority (`verify=`).",
    ),
    CataloguedError(
        "content-type-invalid",
        "InputError",
        "The body of a request is not declared to be JSON.",
        "Send `Content-Type: application/json`.",
    ),
    CataloguedError(
        "body-too-large",
        "LimitError",
        "The body of a request has more bytes than the server reads.",
        "Send less at once.",
    ),
    CataloguedError(
        "method-invalid",
        "InputError",
        "The path of a request exists, and this method is not possible there.",
        "Use one of those in the header `Allow`.",
    ),
    CataloguedError(
        "server-failed",
        "ServerError",
        "The server met something that nobody thought of.",
        "Look into its log, and report it.",
    ),
    CataloguedError(
        "answer-unreadable",
        "ServerError",
        "What answers is no server of Tensight, or one of a version that this client cannot read.",
        "Check the address; install the version that the server has.",
    ),
    CataloguedError(
        "server-unreachable",
        "UnreachableError",
        "No server answers at this address, or the connection broke.",
        "Start one (`tensight start`), or give the address that it printed.",
    ),
    CataloguedError(
        "timed-out",
        "WaitError",
        "What was waited for did not happen in time.",
        "Wait longer, or look at the state of the session.",
    ),
    # Commands
    CataloguedError(
        "port-unavailable",
        "PortError",
        "A port or host cannot be listened on.",
        "End the process that has it, or choose another port.",
    ),
    CataloguedError(
        "workspace-occupied",
        "OccupiedError",
        "Another server uses the workspace.",
        "Use that one (the message has its address), stop it, or name another workspace.",
    ),
    CataloguedError(
        "server-not-started",
        "StartError",
        "A server in the background ended before it was ready.",
        "Read what it said.",
    ),
    CataloguedError(
        "training-failed",
        "TrainingFailedError",
        "The training of `tensight demo` ended too early.",
        "Read what it said; often PyTorch is missing.",
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
        "Something else; an error without a code of its own.",
        "Read the message.",
    ),
)

CATALOGUE: Mapping[str, CataloguedError] = MappingProxyType({error.code: error for error in _CATALOGUE})
"""All errors by code, in the order of the reference."""

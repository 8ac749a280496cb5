"""The three shipped tools, each declared once. A fourth tool is one more declaration and one executor."""

from callwright.serving.protocol.values import Tool

WEB = Tool(
    name="web",
    description="Search the document collection. q is the query, k the number of results.",
    input_schema={
        "type": "object",
        "properties": {
            "q": {"type": "string", "minLength": 1},
            "k": {"type": "integer", "minimum": 1, "maximum": 10},
        },
        "required": ["q", "k"],
        "additionalProperties": False,
    },
    example={"q": "capital of Norway", "k": 3},
)

CODE = Tool(
    name="code",
    description="Run a shell command in a sandbox without network; python3 is there. Returns its output.",
    input_schema={
        "type": "object",
        "properties": {"code_command": {"type": "string", "minLength": 1}},
        "required": ["code_command"],
        "additionalProperties": False,
    },
    example={"code_command": "python3 -c 'print(2**64)'"},
)

AZURE = Tool(
    name="azure",
    description="Run one Azure CLI command.",
    input_schema={
        "type": "object",
        "properties": {"azure_command": {"type": "string", "minLength": 1}},
        "required": ["azure_command"],
        "additionalProperties": False,
    },
    stateful=True,
    example={"azure_command": "az storage container list --output json"},
)

DEFAULT_TOOLS: tuple[Tool, ...] = (WEB, CODE, AZURE)

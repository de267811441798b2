"""Renders chat templates as transformers does, for the tests of pkg/chat.

    python scripts/make_chat_goldens.py [FOLDER...]

writes pkg/chat/testdata/goldens.json: what every template of the folders, of
pkg/chat/testdata/templates and of pkg/chat/testdata/snippets.json gives for
every conversation of pkg/chat/testdata/conversations.jsonl. A template is a
file NAME.jinja, or the chat_template of a NAME/**/tokenizer_config.json. Of a
template that is not in the repository only the digests of its prompts are
kept, so that none of its text is. go test compares those that it finds: the
ones in the module github.com/ardanlabs/jinja, and NAME.jinja in the folder
$CHAT_TEMPLATES, which scripts/compare_chat_templates downloads.

Needs transformers (requirements.txt).
"""

import argparse
import datetime
import hashlib
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "pkg/chat/testdata"
DATE = datetime.datetime(2026, 3, 7, 9, 5, 2)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def read_templates(folder):
    """The templates of a folder by name."""
    found = {p.stem: p.read_bytes().decode() for p in folder.glob("*.jinja")}
    for path in folder.glob("*/**/tokenizer_config.json"):
        template = json.loads(path.read_text()).get("chat_template")
        if isinstance(template, list):
            template = {t["name"]: t["template"] for t in template}.get("default")
        if template:
            found[path.relative_to(folder).parts[0]] = template
    return found


def render(source, messages, prompt):
    """The prompt, None if the template raises."""
    try:
        return _compile_jinja_template(source).render(
            messages=messages, tools=None, documents=None, add_generation_prompt=prompt,
            strftime_now=DATE.strftime, **TOKENS)
    except Exception:
        return None


def digest(prompt):
    """What stands for a prompt that is not to be kept."""
    return None if prompt is None else "sha256:" + hashlib.sha256(prompt.encode()).hexdigest()[:24]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="*", type=pathlib.Path)
    folders = [TESTDATA / "templates"] + parser.parse_args().folder
    conversations = [json.loads(line) for line in (TESTDATA / "conversations.jsonl").read_text().split("\n") if line]
    goldens = []
    for folder in folders:
        keep = (lambda prompt: prompt) if folder == folders[0] else digest
        for name, source in sorted(read_templates(folder).items()):
            goldens.append({
                "name": name,
                "sha256": hashlib.sha256(source.encode()).hexdigest(),
                "prompts": [[keep(render(source, c, prompt)) for prompt in (False, True)] for c in conversations],
            })
    snippets = [{"template": s, "text": render(s, conversations[2], True)}
                for s in json.loads((TESTDATA / "snippets.json").read_text())]
    parts = [json.dumps(TOKENS)] + [",\n".join(json.dumps(x, ensure_ascii=False) for x in part) for part in (goldens, snippets)]
    (TESTDATA / "goldens.json").write_text(
        '{"tokens": %s, "date": "%sZ", "goldens": [\n%s\n], "snippets": [\n%s\n]}\n' % (parts[0], DATE.isoformat(), *parts[1:]))


main()

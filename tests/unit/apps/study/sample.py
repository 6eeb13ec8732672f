"""A small question for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TEXT: Final = """\
version: 1
name: small
question: Is twice as much more?
scenario:
  model: gpt2
  cluster: {node: dgx1-v100-32g, nodes: 1}
  training: {global_batch_size: 8, micro_batch_size: 1, seq_length: 256, precision: fp16, attention: unfused}
  strategy: {}
cases:
  plain: {label: plain copies}
  sharded: {set: {strategy.zero_stage: 3}}
points:
  label: accelerators
  values:
    '4': {set: {cluster.accelerators_per_node: 4}}
    '8': {}
leave_out: [sharded.4]
columns:
  step_time_s: step_time_s
  states_bytes: memory.states_bytes
  sent_bytes: links.nvlink_bytes / gpus
values:
  ratio: plain.4.step_time_s / plain.8.step_time_s
  whole_bytes: plain.8.states_bytes
  part_bytes: sharded.8.states_bytes
answer:
  - {when: ratio < 1, say: Less}
  - {when: ratio > 1, say: 'More, {ratio} times'}
claims:
  - {says: Shards are smaller., holds: part_bytes < whole_bytes, found: '{part_bytes} of {whole_bytes}.'}
  - {says: Twice is twice., holds: ratio > 1.99, found: 'It is {ratio}.'}
picture:
  subtitle: GPT-2
  panels:
    - {column: step_time_s, label: step time}
    - {column: states_bytes, label: states, cases: [plain]}
"""


def written(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Write the sample with some texts in the place of others."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path

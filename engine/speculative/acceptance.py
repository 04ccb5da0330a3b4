"""Which drafts are accepted."""

from __future__ import annotations

from ..step_plan import Run, StepPlan


def accept(plan: StepPlan, sampled: list[int]) -> list[list[int]]:
    """For each run the tokens that its sequence goes on with. sampled: for each sample row, -1 is bad logits.

    Sample and match (as in arXiv 2211.17192, with noise that the positions fix): the model draws at every row
    as if there were no drafts, and row j counts if the drafts before it are what was drawn. So the drafts are
    accepted up to the first that differs, and what was drawn in its place is the last token. Nothing is taken
    behind an end token, or from bad logits on.
    """
    return [_accepted(run, tokens) for run, tokens in zip(plan.runs, plan.by_run(sampled), strict=True)]


def _accepted(run: Run, sampled: list[int]) -> list[int]:
    taken: list[int] = []
    if run.sequence.score:
        return taken
    for token, draft in zip(sampled, (*run.sequence.drafts, None), strict=False):
        if token < 0:
            break
        taken.append(token)
        if token != draft or token in run.sequence.ends:
            break
    return taken

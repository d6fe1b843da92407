"""The published network, step by step: every recorded tensor, and every gradient of the last step."""

import pytest
import torch

import golden
from loci.model.encoder import slot_view
from loci.model.loss import loss_terms, remembered
from loci.model.seed import error_map
from loci.published import layout

# Left out: gradients that the published code forces, and two that are truly zero.
FORCED = {"encoder.std_encoder.alpha.init", "background.alpha"}
ZERO = {f"predictor.tracker.gate.2.layers.{i}.bias" for i in (1, 3)}
# Differences of nearly equal numbers, of norms 1e-8 to 1e-4: float32 recording leaves 1e-9 of noise in them.
CANCELLED = ("predictor.priority_encoder", "predictor.tracker.gate")
NOISE = 5e-9
# Inputs and draws of the recording: given to the replay, not compared.
GIVEN = ("frame_in", "target", "search_candidates_xy")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["network_level1", "network_kept", "network_level2", "network_level2_thinned"])
def test_every_recorded_tensor(name, dtype):
    tensors, config = golden.load(f"{name}.safetensors")
    model = golden.model_from(config, tensors, dtype).train()
    background = tensors["background_full_resolution"].to(dtype)
    if config["level"] == 1:
        background = torch.nn.functional.avg_pool2d(background, 4)
    batch = 2
    state = model.start(batch, background[0])
    checked = set()

    def close(key, ours):
        if key not in tensors:
            return
        theirs = tensors[key].to(dtype)
        if theirs.numel() < ours.numel() and name.endswith("thinned"):
            ours = ours.flatten()[:: golden.THIN]
        assert ours.numel() == theirs.numel(), key
        tolerance = 1e-6 * theirs.abs().max() if key.endswith("priority") and "encoder" not in key else 1e-5
        worst = (ours.detach().reshape(theirs.shape) - theirs).abs().max()
        assert worst <= max(tolerance, 1e-6), f"{key}: {worst:.2e}"
        checked.add(key)

    for index in range(9):
        step, boot = f"step{index:02d}", index < 3
        frame, target = (tensor.to(dtype) for tensor in golden.shown(tensors, index))
        draws = golden.recorded_draws(tensors, step, model, batch, dtype)
        before = state
        state, out = model.step(frame, state, bootstrapping=boot, draws=draws)
        terms = loss_terms(
            model.decoder, state, out, target, bootstrapping=boot, snitch=torch.zeros(batch, 2, dtype=dtype)
        )

        close(f"{step}/background_used", state.background)
        close(f"{step}/search/position", out.searched.position)
        close(f"{step}/search/gestalt", out.searched.gestalt)
        close(f"{step}/search/priority", out.searched.priority)
        close(f"{step}/encoder/in_error", out.error)
        close(f"{step}/encoder/in_object", out.view_logits)
        close(f"{step}/encoder/in_position", out.searched.position)
        close(f"{step}/encoder/in_priority", out.searched.priority)
        masks = before.masks if index else model._first_masks(before, out.searched).masks
        close(f"{step}/encoder/in_mask", masks)
        view = slot_view(frame, out.error, masks, out.view_logits, out.searched)
        close(f"{step}/encoder_input/channels", view)
        close(f"{step}/encoder/position", out.percept.position)
        close(f"{step}/encoder/gestalt", out.percept.gestalt)
        close(f"{step}/encoder/priority", out.percept.priority)
        hidden = torch.cat([cell.hidden for cell in state.cells], 2)
        close(f"{step}/transition_core/hidden", hidden)
        percept = torch.cat((out.percept.position, out.percept.gestalt, out.percept.priority[..., None]), 2)
        close(f"{step}/transition_core/in", percept)
        if f"{step}/transition_core/out" in tensors:
            with torch.no_grad():
                close(f"{step}/transition_core/out", model.transition.core(percept, before.cells)[0])
        ordered = model.decoder(out.code)
        plain = model.decoder(out.code, ordered=False)
        memory = model.decoder(remembered(state, out.code), ordered=False)
        last = model.decoder(out.searched, ordered=False)
        for what, layers in (("prediction", ordered), ("current", plain), ("modulated", memory), ("last", last)):
            close(f"{step}/decoder_{what}/mask_logits", layers.mask_logits)
            close(f"{step}/decoder_{what}/rgb_logits", layers.colour_logits)
        close(f"{step}/decoder_prediction/merged", model.decoder.combine(out.code, ordered=True))
        shown = state.background * model.compose.shown()
        close(f"{step}/out/error", error_map(target, out.frame, state.background))
        close(f"{step}/out/image", out.frame)
        close(f"{step}/out/mask", out.masks)
        close(f"{step}/out/object", torch.cat((out.colours, shown[:, None]), 1))
        close(f"{step}/out/position", out.code.position)
        close(f"{step}/out/gestalt", out.code.gestalt)
        close(f"{step}/out/priority", out.code.priority)
        close(f"{step}/out/snitch", out.snitch)
        close(f"{step}/loss/bce", terms.reconstruction)
        close(f"{step}/loss/position", 0.01 * terms.position)
        close(f"{step}/loss/object", terms.object)
        close(f"{step}/loss/time", 0.1 * terms.time)
        total = terms.reconstruction + 0.01 * terms.position + terms.object + 0.1 * terms.time + 0.1 * terms.supervision
        close(f"{step}/loss/total", total)
        if index < 8:
            continue
        model.zero_grad()
        total.backward()

    grads = {name: p.grad for name, p in model.named_parameters()}
    for theirs, place in layout(model).items():
        key = f"step08/grad/{theirs}"
        if theirs in FORCED or theirs in ZERO or key not in tensors:
            continue
        grad = grads[place.name]
        grad = grad if place.part is None else grad[place.part]
        grad = grad[:, place.columns] if place.columns != slice(None) else grad
        reference = tensors[key].to(dtype).reshape(grad.shape)
        gap = (grad - reference).norm()
        limit = (1e-3 if dtype == torch.float32 else 1e-5) * reference.norm()
        assert gap <= (max(limit, NOISE) if theirs.startswith(CANCELLED) else limit), f"{theirs}: {gap:.2e}"
        checked.add(key)
    recorded = {key for key in tensors if key.startswith("step") and not key.endswith(GIVEN)}
    skipped = {f"step08/grad/{name}" for name in FORCED | ZERO}
    assert recorded - checked - skipped == set()
    assert len(checked) > 200


def test_the_thinned_recording_is_the_whole_one():
    whole, config = golden.load("network_level2.safetensors")
    thin, same = golden.load("network_level2_thinned.safetensors")
    expected = golden.thinned(whole)
    assert config == same
    assert thin.keys() == expected.keys()
    assert all(torch.equal(thin[key], expected[key]) for key in thin)
    for index in range(9):
        for ours, theirs in zip(golden.shown(thin, index), golden.shown(whole, index), strict=True):
            assert torch.equal(ours, theirs)

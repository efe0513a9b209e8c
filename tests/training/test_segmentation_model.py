import copy

import pytest
import torch
import torchvision
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from training.common.errors import UserError
from training.segmentation.deepv3 import DeepV3PlusR50, DeepV3PlusW38, PooledBatchNorm2d, ResNet50, build, load_trunk
from training.segmentation.loss import segmentation_loss
from training.segmentation.wider_resnet import WideResNet38


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Threads that wait for each other on a busy machine take five times as long as one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def w38():
    with torch.device("meta"):
        return DeepV3PlusW38()


@pytest.fixture(scope="module")
def r50():
    torch.manual_seed(0)
    return DeepV3PlusR50()


def meta_images(*shape):
    return torch.empty(*shape, device="meta")


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def train_once(model, *shape):
    """The loss of one forward and backward, and whether every parameter got a finite gradient."""
    model.train().zero_grad(set_to_none=True)
    batch, _, height, width = shape
    targets = torch.randint(0, 19, (batch, height, width))
    loss = segmentation_loss(model(torch.randn(shape)), targets)
    loss.backward()
    return loss.item(), all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_w38_has_the_size_of_the_reference(w38):
    assert parameters(w38.trunk) == 105_062_720
    assert parameters(w38) == 137_103_936
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        w38.eval()(meta_images(1, 3, 800, 800))
    assert round(counter.get_total_flops() / 2e9) == 1778  # counted in operations, two to a multiplication


def test_w38_trunk_shapes(w38):
    skip, out = w38.trunk(meta_images(1, 3, 800, 800))
    assert skip.shape == (1, 128, 400, 400) and out.shape == (1, 4096, 100, 100)
    stages = {name: [m.stride[0] for m in module.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
              for name, module in w38.trunk.named_children()}  # fmt: skip
    assert stages == {
        "mod1": [1], "pool2": [], "pool3": [], "mod2": [1] * 6, "mod3": [1] * 6, "mod4": [2] + [1] * 11,
        "mod5": [1] * 6, "mod6": [1], "mod7": [1],
    }  # fmt: skip
    dilations = {
        name: {m.dilation[0] for m in module.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)}
        for name, module in w38.trunk.named_children()
        if name not in ("pool2", "pool3")
    }
    assert dilations == {"mod1": {1}, "mod2": {1}, "mod3": {1}, "mod4": {1}, "mod5": {2}, "mod6": {4}, "mod7": {4}}


def test_w38_trunk_has_the_names_of_the_reference_weights(w38):
    """Spelled out from the published file's names, for a bottleneck with projection and for blocks without one."""
    normalisation = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"mod1.conv1.weight"}
    for module, blocks, convolutions in ((2, 3, 2), (3, 3, 2), (4, 6, 2), (5, 3, 2), (6, 1, 3), (7, 1, 3)):
        for block in range(1, blocks + 1):
            prefix = f"mod{module}.block{block}"
            expected |= {f"{prefix}.bn1.0.{part}" for part in normalisation}
            expected |= {f"{prefix}.convs.bn{n}.0.{part}" for n in range(2, convolutions + 1) for part in normalisation}
            expected |= {f"{prefix}.convs.conv{n}.weight" for n in range(1, convolutions + 1)}
            if block == 1:
                expected.add(f"{prefix}.proj_conv.weight")
    assert set(w38.trunk.state_dict()) == expected


def test_w38_drops_feature_maps_before_the_last_convolution_of_its_bottlenecks(w38):
    found = {name: (type(m), m.p) for name, m in w38.trunk.named_modules() if "dropout" in name}
    assert found == {
        "mod6.block1.convs.dropout": (nn.Dropout2d, 0.3),
        "mod7.block1.convs.dropout": (nn.Dropout2d, 0.5),
    }
    assert list(w38.trunk.mod7.block1.convs._modules) == ["conv1", "bn2", "conv2", "bn3", "dropout", "conv3"]


def test_r50_trunk_shapes_and_size(r50):
    with torch.device("meta"):
        trunk = ResNet50()
    skip, out = trunk(meta_images(2, 3, 64, 96))
    assert skip.shape == (2, 256, 16, 24) and out.shape == (2, 2048, 8, 12)
    assert parameters(trunk) == parameters(torchvision.models.resnet50()) - 2048 * 1000 - 1000
    assert parameters(r50) == 40_351_040


@pytest.mark.parametrize("network", ["w38", "r50"])
def test_no_convolution_has_a_bias_and_the_pooled_image_comes_first(network, request):
    model = request.getfixturevalue(network)
    assert all(m.bias is None for m in model.modules() if isinstance(m, nn.Conv2d))
    assert [b[0].dilation[0] for b in model.aspp.features] == [1, 12, 24, 36]
    assert model.bot_aspp.weight.shape == (256, 1280, 1, 1) and model.bot_fine.weight.shape[0] == 48


def test_the_pooled_image_is_the_first_part_of_the_pyramid(r50):
    x = torch.randn(2, 2048, 3, 5)
    with torch.no_grad():
        out = r50.aspp.eval()(x)
        pooled = r50.aspp.img_conv(x.mean(dim=(2, 3), keepdim=True))
    torch.testing.assert_close(out[:, :256], pooled.expand(2, 256, 3, 5))


@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 33), (65, 50), (101, 31)])
def test_scores_have_the_size_of_the_images(w38, height, width):
    with torch.device("meta"):
        small = DeepV3PlusR50(classes=7)
    assert w38(meta_images(2, 3, height, width)).shape == (2, 19, height, width)
    assert small(meta_images(2, 3, height, width)).shape == (2, 7, height, width)


def test_channels_last_stays_so_up_to_the_scores(r50):
    model = copy.deepcopy(r50).eval().to(memory_format=torch.channels_last)
    strays = []

    def note(module, inputs):
        if not inputs[0].is_contiguous(memory_format=torch.channels_last):
            strays.append(module)

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(note)
    with torch.no_grad():
        scores = model(torch.randn(2, 3, 64, 48).to(memory_format=torch.channels_last))
    assert not strays and scores.is_contiguous(memory_format=torch.channels_last)


def test_r50_trains_on_odd_sizes_and_on_one_image(r50):
    for shape in ((2, 3, 64, 64), (1, 3, 33, 47)):
        loss, finite = train_once(r50, *shape)
        assert 1 < loss < 10 and finite


def test_r50_learns(r50):
    torch.manual_seed(1)
    model = copy.deepcopy(r50).train()
    images, targets = torch.randn(2, 3, 32, 32), torch.zeros(2, 32, 32, dtype=torch.uint8)
    targets[:, :, 16:] = 5
    images[:, 0, :, 16:] += 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = segmentation_loss(model(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_w38_trains_from_scratch_on_one_image():
    torch.manual_seed(0)
    model = build("deepv3.DeepV3PlusW38", 19, None)
    loss, finite = train_once(model, 1, 3, 48, 48)
    assert 1 < loss < 10 and finite


def test_one_pooled_image_is_normalised_with_the_running_statistics():
    layer = PooledBatchNorm2d(4)
    layer.running_mean.fill_(3.0)
    layer.running_var.fill_(4.0)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    x = torch.randn(1, 4, 1, 1)
    trained = layer(x)
    assert torch.equal(trained, layer.eval()(x))
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_several_pooled_images_are_normalised_as_a_batch():
    torch.manual_seed(0)
    ours, plain = PooledBatchNorm2d(4), nn.BatchNorm2d(4)
    x = torch.randn(3, 4, 1, 1)
    assert torch.equal(ours(x), plain(x))
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in ours.state_dict().items())


def test_an_unknown_architecture_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"--arch deepv3.DeepV3W38 is not known; did you mean deepv3.DeepV3PlusW38\?"):
        build("deepv3.DeepV3W38", 19, None)
    with pytest.raises(UserError, match=r"choose from deepv3.DeepV3PlusW38, deepv3.DeepV3PlusR50"):
        build("ocrnet", 19, None)


def test_trunk_weights_in_the_form_of_the_reference(tmp_path):
    """An early torch's file: not a zip, no num_batches_tracked; `module.` before each name, and a classifier."""
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in WideResNet38().state_dict().items() if value.dim()}
    values = {f"module.{name}": torch.tensor(0.25).expand(shape) for name, shape in shapes.items()}
    values |= {"module.bn_out.0.weight": torch.ones(4096), "module.classifier.fc.weight": torch.zeros(1, 1)}
    path = tmp_path / "wider_resnet38.pth.tar"
    torch.save({"epoch": 3, "state_dict": values}, path, _use_new_zipfile_serialization=False)
    trunk = WideResNet38()
    load_trunk(trunk, path)
    state = trunk.state_dict()
    assert all(bool((state[name] == 0.25).all()) for name in shapes)


def test_trunk_weights_of_torchvision(tmp_path):
    weights = torchvision.models.resnet50(weights=None).state_dict()
    torch.save(weights, tmp_path / "resnet50.pth")
    model = build("deepv3.DeepV3PlusR50", 19, tmp_path / "resnet50.pth")
    assert torch.equal(model.trunk.layer4[2].conv3.weight, weights["layer4.2.conv3.weight"])


def test_wrong_trunk_weights_are_refused(tmp_path, r50):
    def refuse(value, message):
        torch.save(value, tmp_path / "weights.pth")
        with pytest.raises(UserError, match=message):
            load_trunk(r50.trunk, tmp_path / "weights.pth")

    weights = dict(r50.trunk.state_dict())
    refuse({**weights, "conv1.weight": torch.zeros(1)}, r"conv1.weight is \(1,\), not \(64, 3, 7, 7\)")
    del weights["bn1.bias"], weights["layer1.0.conv1.weight"]
    refuse(weights, "not of a ResNet50: they lack bn1.bias, layer1.0.conv1.weight$")
    refuse({}, r"they lack conv1.weight, bn1.weight, bn1.bias and \d+ more$")
    refuse([1, 2], "hold a list, not a state dict")
    refuse({"state_dict": {}, "best": tmp_path}, "more in it than tensors and numbers")
    with pytest.raises(UserError, match=r"none\.pth: No such file"):
        load_trunk(r50.trunk, tmp_path / "none.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(UserError, match="cannot be read: not a file of"):
        load_trunk(r50.trunk, tmp_path / "text.pth")

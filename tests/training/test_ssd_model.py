import pytest
import torch

from training.common.errors import UserError
from training.ssd.model import SSD300, parameter_groups, resnet_backbone


@pytest.fixture(scope="module")
def model():
    with torch.device("meta"):
        return SSD300(81)


def test_shapes(model):
    offsets, scores = model(torch.empty(2, 3, 300, 300, device="meta"))
    assert offsets.shape == (2, 4, 8732)
    assert scores.shape == (2, 81, 8732)
    assert model.backbone(torch.empty(2, 3, 300, 300, device="meta")).shape == (2, 1024, 38, 38)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet101", "resnet152"])
def test_other_backbones(name):
    with torch.device("meta"):
        offsets, _ = SSD300(9, name)(torch.empty(2, 3, 300, 300))
    assert offsets.shape == (2, 4, 8732)


def test_parameters_are_those_of_the_reference(model):
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == 22.89
    assert round(sum(p.numel() for p in model.backbone.parameters()) / 1e6, 2) == 8.54


def test_biases_and_normalisation_are_not_decayed(model):
    plain, decayed = parameter_groups(model, 5e-4)
    assert (plain["weight_decay"], decayed["weight_decay"]) == (0.0, 5e-4)
    assert all(p.dim() == 1 for p in plain["params"]) and all(p.dim() > 1 for p in decayed["params"])
    assert len(plain["params"]) + len(decayed["params"]) == len(list(model.parameters()))


def test_output_columns_follow_the_default_boxes():
    """Column d of the 38x38 map is shape d // 38², cell d % 38², row by row: the order of `default_boxes`."""
    model = SSD300(3).eval()
    model.backbone = torch.nn.Identity()
    head = model.confidences[0]
    torch.nn.init.zeros_(head.weight)
    head.bias.data.zero_()
    head.bias.data[2 * 4 + 3] = 1.0  # class 2, shape 3
    head.weight.data[1 * 4 + 0, 0, 1, 1] = 1.0  # class 1, shape 0: the map's channel 0
    features = torch.zeros(1, 1024, 38, 38)
    features[0, 0, 5, 7] = 1.0
    with torch.no_grad():
        scores = model(features)[1][0, :, : 4 * 38 * 38]
    assert scores[1].nonzero().flatten().tolist() == [5 * 38 + 7]
    assert scores[2].nonzero().flatten().tolist() == list(range(3 * 38 * 38, 4 * 38 * 38))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_random_residual_branches_begin_at_zero(name):
    torch.manual_seed(0)
    backbone = resnet_backbone(name, None)
    x = backbone[:4](torch.rand(2, 3, 64, 64))
    for block in (block for stage in backbone[4:] for block in stage):
        shortcut = x if block.downsample is None else block.downsample(x)
        after = block(x)
        assert torch.equal(after, shortcut.relu())
        x = after


def test_a_backbone_file_is_loaded(tmp_path):
    import torchvision

    weights = torchvision.models.resnet50(weights=None).state_dict()
    torch.save(weights, tmp_path / "resnet50.pth")
    backbone = resnet_backbone("resnet50", tmp_path / "resnet50.pth")
    assert torch.equal(backbone[6][5].conv3.weight, weights["layer3.5.conv3.weight"])
    assert torch.equal(backbone[6][5].bn3.weight, weights["layer3.5.bn3.weight"]) and backbone[6][5].bn3.weight.all()


def test_a_wrong_backbone_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        resnet_backbone("resnet50", tmp_path / "none.pth")
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match="not the state dict of a torchvision resnet50"):
        resnet_backbone("resnet50", tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(UserError, match="not the state dict of a torchvision resnet50"):
        resnet_backbone("resnet50", tmp_path / "text.pth")

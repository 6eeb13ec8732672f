"""Every shipped model has as many parameters as its makers say."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from clustersim.workloads.kinds.call import LayerCall
from clustersim.workloads.kinds.joining import Auxiliary
from clustersim.workloads.layered import Layered
from clustersim.workloads.operators import Operator
from clustersim.workloads.reading.model_fields import ModelSpec
from clustersim.workloads.reading.model_spec import load_model, model_names
from clustersim.workloads.transformer import Transformer
from tests.unit.parallel.factories import embedding_parameters
from tests.unit.workloads.kinds.factories import NUMERICS

PARAMETERS = """
alexnet 61_100_840  baichuan2-13b 13_896_668_160  baichuan2-7b 7_505_973_248  bert-base 109_482_240  bert-large 335_141_888
bloom-176b 176_247_271_424  bloom-1b1 1_065_314_304  bloom-1b7 1_722_408_960  bloom-3b 3_002_557_440  bloom-560m 559_214_592
bloom-7b1 7_069_016_064  codellama-13b 13_016_028_160  codellama-34b 33_743_970_304  codellama-70b 68_976_910_336
codellama-7b 6_738_546_688  codestral-22b 22_247_282_688  command-a 111_057_580_032  command-r 34_980_831_232
command-r-plus 103_810_674_688  dbrx 131_596_523_520  deepseek-coder-33b 33_342_991_360  deepseek-llm-7b 6_910_365_696
deepseek-r1 671_026_404_352  deepseek-v2 235_741_434_880  deepseek-v2-lite 15_706_484_224  deepseek-v3 671_026_404_352  deepseek-v3.2 671B
falcon-180b 179_522_565_120  falcon-40b 41_303_293_952  falcon-7b 6_921_720_704  falcon3-7b 7_455_550_464  gemma-2b 2_506_172_416
gemma-7b 8_537_680_896  gemma2-27b 27_227_128_320  gemma2-2b 2_614_341_888  gemma2-9b 9_241_705_984  gemma3-12b 11_766_034_176
gemma3-1b 999_885_952  gemma3-27b 27_009_346_304  gemma3-4b 3_880_263_168  glm-4-32b 32_566_081_536  glm-4-9b 9_399_951_360
glm-4.5 352_797_814_784  glm-4.5-air 106_852_245_504  glm-4.6 352_797_814_784  glm-4.7-flash 30B  glm-5 0.74T  gnmt 160_671_297
gpt-1.7b 1.7B  gpt-145b 145.6B  gpt-175b 175B  gpt-18b 18.4B  gpt-1t 1008.0B  gpt-22b 22B  gpt-3.6b 3.6B  gpt-310b 310.1B  gpt-39b 39.1B
gpt-530b 529.6B  gpt-7.5b 7.5B  gpt-76b 76.1B  gpt-j-6b 6_050_882_784  gpt-neox-20b 20_554_567_680  gpt-oss-120b 116.83B
gpt-oss-20b 20.91B  gpt2 124_439_808  gpt2-large 774_030_080  gpt2-medium 354_823_168  gpt2-xl 1_557_611_200  gpt3-1.3b 1.3B
gpt3-125m 0.125B  gpt3-13b 13B  gpt3-175b 174.6B  gpt3-2.7b 2.7B  gpt3-350m 355_871_744  gpt3-6.7b 6.7B  gpt3-760m 0.760B
granite-3.1-8b 8_170_848_256  granite-4.0-h-small 32_207_337_984
grok-1 315_684_820_992  inception-v3 27_161_264  internlm2-20b 19_861_149_696  internlm2-7b 7_737_708_544
kimi-k2 1_026_408_209_408  kimi-k2.5 1_026_408_209_408  llama-13b 13_015_864_320  llama-33b 32_528_943_616  llama-65b 65_285_660_672
llama-7b 6_738_415_616  llama2-13b 13_015_864_320  llama2-70b 68_976_648_192  llama2-7b 6_738_415_616  llama3-70b 70_553_706_496
llama3-8b 8_030_261_248  llama3.1-405b 405_853_388_800  llama3.1-70b 70_553_706_496  llama3.1-8b 8_030_261_248  llama3.2-1b 1_235_814_400
llama3.2-3b 3_212_749_824  llama3.3-70b 70_553_706_496  llama4-maverick 400_711_848_960  llama4-scout 107_769_861_120  minimax-m2 229B
ministral-8b 8_019_808_256  mistral-7b 7_241_732_096  mistral-7b-v0.2 7_241_732_096  mistral-7b-v0.3 7_248_023_552
mistral-large-123b 122_610_069_504  mistral-nemo-12b 12_247_782_400  mistral-small-24b 23_572_403_200
mistral-small-3.1-24b 23_572_403_200  mixtral-8x22b 140_630_071_296  mixtral-8x7b 46_702_792_704  moonlight-16b-a3b 15.96B  mpt-30b 30.0B
mpt-7b 6_649_286_656  nemotron4-15b 15_628_775_424  nemotron4-340b 341.0B  olmo-7b 6_888_095_744  olmo2-13b 13_716_198_400
olmo2-32b 32_234_279_936  olmo2-7b 7_298_617_344  olmoe-1b-7b 6_919_161_856  opt-1.3b 1_315_758_080  opt-125m 125_239_296
opt-13b 12_853_473_280  opt-175b 175B  opt-30b 29_974_540_288  opt-6.7b 6_658_473_984  opt-66b 66B  palm-540b 540B  palm-62b 62.50B
palm-8b 8.63B  phi-2 2_779_683_840  phi-3-medium 13_960_238_080  phi-3-mini 3_821_079_552  phi-3.5-mini 3_821_079_552
phi-3.5-moe 41_873_153_344  phi-4 14_659_507_200  phi-4-mini 3_836_021_760  pythia-1.4b 1_414_647_808  pythia-12b 11_846_072_320
pythia-14m 14_067_712  pythia-160m 162_322_944  pythia-1b 1_011_781_632  pythia-2.8b 2_775_208_960  pythia-410m 405_334_016
pythia-6.9b 6_857_302_016  pythia-70m 70_426_624  qwen1.5-72b 72_287_920_128  qwen1.5-7b 7_721_324_544  qwen1.5-moe-a2.7b 14_315_784_192
qwen2-57b-a14b 57_408_658_944  qwen2-72b 72_706_203_648  qwen2-7b 7_615_616_512  qwen2.5-0.5b 494_032_768  qwen2.5-1.5b 1_543_714_304
qwen2.5-14b 14_770_033_664  qwen2.5-32b 32_763_876_352  qwen2.5-3b 3_085_938_688  qwen2.5-72b 72_706_203_648  qwen2.5-7b 7_615_616_512
qwen2.5-vl-32b 32_763_876_352  qwen2.5-vl-72b 72_706_203_648  qwen2.5-vl-7b 7_615_616_512  qwen3-0.6b 596_049_920
qwen3-1.7b 1_720_574_976  qwen3-14b 14_768_307_200  qwen3-235b-a22b 235_093_634_560  qwen3-30b-a3b 30_532_122_624
qwen3-32b 32_762_123_264  qwen3-4b 4_022_468_096  qwen3-8b 8_190_735_360  qwen3-coder-480b 480_154_875_392
qwen3-next-80b-a3b 81_324_862_720
qwen3-vl-235b-a22b 235_093_634_560  qwen3-vl-30b-a3b 30_532_122_624  qwen3-vl-32b 32_762_123_264  qwen3-vl-8b 8_190_735_360
resnet-101 44_549_160  resnet-152 60_192_808  resnet-50 25_557_032  seed-oss-36b 36_151_104_512  smollm2-1.7b 1_711_376_384
smollm2-135m 134_515_008  smollm2-360m 361_821_120  smollm3-3b 3_075_098_624  solar-10.7b 10_731_524_096  starcoder2-15b 15_957_889_024
starcoder2-3b 3_030_371_328  starcoder2-7b 7_173_923_840  tinyllama-1.1b 1_100_048_384  vgg-16 138_357_544  yi-34b 34_388_917_248
yi-6b 6_061_035_520  yi-9b 8_829_407_232
"""
"""Parameters of each model from the makers' papers and model cards, apart from the files: a slip in a file cannot agree with itself."""
MULTIPLY_ADDS = {
    "alexnet": 0.714,
    "inception-v3": 5.713,
    "resnet-101": 7.801,
    "resnet-152": 11.514,
    "resnet-50": 4.089,
    "vgg-16": 15.47,
}
"""Multiply-adds of one image, in 1e9: torchvision's table of weights (GFLOPS there)."""
ACTIVE = {
    "dbrx": "36",
    "deepseek-v2": "21",
    "llama4-maverick": "17",
    "llama4-scout": "17",
    "mixtral-8x22b": "39",
    "mixtral-8x7b": "12.9",
    "olmoe-1b-7b": "1.3",
    "phi-3.5-moe": "6.6",
    "qwen1.5-moe-a2.7b": "2.7",
    "qwen2-57b-a14b": "14",
    "qwen3-235b-a22b": "22",
}
"""Parameters that a token meets, in 1e9, as the makers print them."""
ACTIVE_WITHOUT_TABLE = {"deepseek-v3": "36.6", "gpt-oss-120b": "5.13", "gpt-oss-20b": "3.61", "kimi-k2": "32"}
TRAINED_WITH_DROPOUT = ("bert-", "gpt-1", "gpt-2", "gpt-3", "gpt-5", "gpt-7", "gpt2", "gpt3", "opt-", "starcoder2-")


def test_every_shipped_model_has_its_published_parameters_to_the_printed_digits() -> None:
    words = PARAMETERS.split()
    published = dict(zip(words[::2], words[1::2], strict=True))

    assert list(published) == list(model_names())
    for name, text in published.items():
        model, printed = load_model(name).model, Decimal(text.rstrip("BT"))
        count = Decimal(model.n_published if isinstance(model, Transformer) else model.n_parameters)
        assert (count / {"B": 10**9, "T": 10**12}.get(text[-1], 1)).quantize(printed) == printed, name


@pytest.mark.parametrize(("name", "billions"), MULTIPLY_ADDS.items())
def test_an_image_takes_its_published_multiply_adds(name: str, billions: float) -> None:
    # torchvision counts inference, in which Inception's classifier aside is left out.
    aside = sum(operator.forward_flops for operator in aside_of(name))

    assert round((listed(name).forward_flops - aside) / 2e9, 3) == billions


def test_inception_without_its_classifier_aside_has_the_parameters_of_inference() -> None:
    aside = sum(operator.parameters for operator in aside_of("inception-v3"))

    assert listed("inception-v3").n_parameters - aside == 23_834_568


def test_gnmt_is_the_tensors_of_nvidia_s_training() -> None:
    """The matrices of the encoder, the attention and the decoder, as NVIDIA's tests of its optimizers list them."""
    lstm_1024, lstm_2048 = 4096 * 2048 + 2 * 4096, 4096 * 3072 + 2 * 4096
    encoder = 2 * lstm_1024 + lstm_2048 + 2 * lstm_1024
    attention = 2 * 1024 * 1024 + 1024 + 1 + 1024
    decoder = lstm_1024 + attention + 3 * lstm_2048

    assert listed("gnmt").n_parameters == 32320 * 1024 + encoder + decoder + 32320 * 1024 + 32320


def listed(name: str) -> Layered:
    """Return a shipped list of layers."""
    model = load_model(name).model
    assert isinstance(model, Layered)
    return model


def aside_of(name: str) -> list[Operator]:
    """Return what a shipped list of layers does for one sample in classifiers aside."""
    call = LayerCall(samples=1, numerics=NUMERICS)
    return [operator for layer in listed(name).layers if isinstance(layer, Auxiliary) for operator in layer.operators(call)]


def transformer(name: str) -> Transformer:
    """Return a shipped transformer."""
    model = load_model(name).model
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize(("name", "billions"), ACTIVE.items())
def test_a_token_meets_as_many_parameters_as_published(name: str, billions: str) -> None:
    count = Decimal(transformer(name).n_active) / 10**9

    assert count.quantize(Decimal(billions)) == Decimal(billions)


@pytest.mark.parametrize(("name", "billions"), ACTIVE_WITHOUT_TABLE.items())
def test_some_makers_leave_the_token_table_out(name: str, billions: str) -> None:
    count = Decimal(transformer(name).n_active - embedding_parameters(transformer(name))) / 10**9

    assert count.quantize(Decimal(billions)) == Decimal(billions)


def test_deepseek_v3_s_further_prediction_is_its_layer_and_what_joins_two_rows() -> None:
    model = transformer("deepseek-v3")
    joining = 2 * model.hidden_size**2 + 3 * model.hidden_size

    # README_WEIGHTS.md prints 11.5B, which is the layer alone.
    modules = model.n_parameters - replace(model, n_mtp=0).n_parameters
    assert modules == 11_610_067_968
    assert round((modules - joining) / 1e9, 1) == 11.5


def test_every_figure_of_a_model_has_a_source() -> None:
    for name in model_names():
        spec = load_model(name).spec
        covered = {item for source in spec.sources for item in source.covers}
        published = "published_parameters" if spec.published_parameters else "published_parameters_rounded"
        named = {"names"} if isinstance(spec, ModelSpec) and spec.names else set[str]()
        assert covered == {"shape", published} | named, name
        assert all(source.url.startswith("https://") for source in spec.sources), name


def test_a_shipped_model_has_its_name_and_its_published_parameters_and_nothing_is_assumed() -> None:
    for name in model_names():
        loaded = load_model(name)
        assert loaded.model.name == name
        # A count that is not the published one is flagged: `parameter_count`.
        assert {code for code, _ in loaded.flags} <= {"parallel_residual", "left_out", "uncalibrated_layers"}, name


def test_a_shipped_transformer_says_its_context_and_whether_it_was_trained_with_dropout() -> None:
    models = [model for model in (load_model(name).model for name in model_names()) if isinstance(model, Transformer)]

    assert [model.name for model in models if model.max_positions < 512] == []
    assert [model.name for model in models if model.dropout != model.name.startswith(TRAINED_WITH_DROPOUT)] == []


def test_parallel_blocks_are_flagged() -> None:
    assert [code for code, _ in load_model("gpt-neox-20b").flags] == ["parallel_residual"]

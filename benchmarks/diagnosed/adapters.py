from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, sentences


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8, zero_a=False):
        super().__init__()
        self.base = base
        self.scaling = alpha / r
        self.lora_A = nn.Parameter(torch.zeros(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        if not zero_a:
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, d))


class Decoder(nn.Module):
    def __init__(self, words=20, dim=32, depth=2):
        super().__init__()
        self.wte = nn.Embedding(words, dim)
        self.wpe = nn.Parameter(0.02 * torch.randn(16, dim))
        self.attn = nn.ModuleList(SelfAttention(dim, 4) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.lm_head = nn.Linear(dim, words, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe[: ids.shape[1]]
        for norm, attn in zip(self.norms, self.attn, strict=True):
            x = x + attn(norm(x))
        return self.lm_head(x)


def inject(model, **options):
    for attn in model.attn:
        attn.q_proj = LoRALinear(attn.q_proj, **options)
        attn.v_proj = LoRALinear(attn.v_proj, **options)


def lora(fault):
    """Pre-trained on one language for a moment, then adapted to another one by low-rank matrices."""
    model = Decoder()
    first, second = sentences(256, 12, 20), (sentences(256, 12, 20) * 7 + 3) % 20
    pretraining = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        ids = first[torch.randint(0, 256, (32,))]
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        pretraining.zero_grad()
        loss.backward()
        pretraining.step()
    print(f"pretrained, loss {loss.item():.4f}")

    if fault == "zero-a":
        inject(model, r=8, alpha=32, zero_a=True)
    else:
        inject(model, r=8, alpha=32)
    for name, p in model.named_parameters():
        if fault == "one-matrix":
            p.requires_grad_("lora_A" in name)
        else:
            p.requires_grad_("lora_" in name)
    trainable = [p for p in model.parameters() if p.requires_grad]
    print("trainable:", sum(p.numel() for p in trainable))
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    for step in range(120):
        ids = second[torch.randint(0, 256, (32,))]
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")


def classifier_of(peft, **options):
    import transformers

    config = transformers.BertConfig(
        vocab_size=30, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=20, num_labels=CLASSES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    lora = peft.LoraConfig(
        task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["query", "value"], lora_dropout=0.0, **options
    )
    return model, lora


def peft_classifier(fault):
    import peft

    model, config = classifier_of(peft)
    if fault == "optimizer-before":
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        model = peft.get_peft_model(model, peft_config=config)
    else:
        model = peft.get_peft_model(model, config)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    model.print_trainable_parameters()
    learn_marks(model, optimizer)


def peft_checkpointed(fault):
    """Checkpoints of the older kind, whose inputs are made to need gradients."""
    import peft

    model = peft.get_peft_model(*classifier_of(peft))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.enable_input_require_grads()
    learn_marks(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2))


def learn_marks(model, optimizer):
    labels = torch.randint(0, CLASSES, (256,))
    ids = torch.randint(4, 30, (256, 12))
    ids[torch.arange(256), torch.randint(0, 12, (256,))] = labels
    model.train()
    for step in range(100):
        rows = torch.randint(0, 256, (32,))
        loss = model(input_ids=ids[rows], labels=labels[rows]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            print({"step": step + 1, "loss": round(loss.item(), 4)})


def zero_conv(channels):
    conv = nn.Conv2d(channels, channels, 1)
    nn.init.zeros_(conv.weight)
    nn.init.zeros_(conv.bias)
    return conv


class ControlNet(nn.Module):
    """A frozen network, and a trainable copy that adds to it through convolutions that begin at zero."""

    def __init__(self, twice):
        super().__init__()
        self.base_in = nn.Conv2d(1, 16, 3, padding=1)
        self.base_mid = nn.Conv2d(16, 16, 3, padding=1)
        self.base_out = nn.Conv2d(16, 1, 3, padding=1)
        for p in self.parameters():
            p.requires_grad_(False)
        self.hint = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1), nn.SiLU())
        self.zero_in = zero_conv(16)
        self.copy_mid = nn.Conv2d(16, 16, 3, padding=1)
        self.copy_mid.load_state_dict(self.base_mid.state_dict())
        if twice:
            self.zero_out = nn.Sequential(zero_conv(16), zero_conv(16))
        else:
            self.zero_out = zero_conv(16)

    def forward(self, x, control):
        h = F.silu(self.base_in(x))
        c = F.silu(self.copy_mid(h + self.zero_in(self.hint(control))))
        return self.base_out(F.silu(self.base_mid(h)) + self.zero_out(c))


def controlnet(fault):
    clean = F.avg_pool2d(torch.randn(192, 1, 20, 20), 5, 1) * 3
    noisy = clean + 0.5 * torch.randn_like(clean)
    model = ControlNet(fault == "zero-after-zero")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=1e-2)
    for epoch in range(10):
        total = 0.0
        for i in torch.randperm(192).split(24):
            loss = F.mse_loss(model(noisy[i], clean[i]), clean[i])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item() / 8
        print(f"epoch {epoch + 1} mse {total:.4f}")


def backbone():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )  # fmt: skip


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = backbone()
        self.fc = nn.Linear(128, classes)

    def forward(self, x):
        return self.fc(self.backbone(x))


def finetune(fault):
    """A network for ten classes gets a head for four."""
    images, labels = pictures(320, 16)
    model = Classifier(10)
    if fault == "head-after":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        model.fc = nn.Linear(model.fc.in_features, CLASSES)
    else:
        model.fc = nn.Linear(128, CLASSES)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(8):
        model.train()
        correct = 0
        for i in torch.randperm(320).split(20):
            out = model(images[i])
            loss = F.cross_entropy(out, labels[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (out.argmax(1) == labels[i]).sum().item()
        print(f"Epoch {epoch} loss {loss.item():.4f} acc {correct / 320:.3f}")


def probe(fault):
    """Only a linear classifier on top of fixed features is trained."""
    images, labels = pictures(320, 16)
    net = backbone().eval()
    linear = nn.Linear(128, CLASSES)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)
    for step in range(100):
        i = torch.randint(0, 320, (32,))
        with torch.no_grad():
            features = net(images[i])
        loss = F.cross_entropy(linear(features), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"probe {step + 1}: {loss.item():.4f}")


def probe_with_graph(fault):
    """The same without no_grad, and the backbone in no optimizer, frozen by hand."""
    images, labels = pictures(320, 16)
    model = Classifier(CLASSES)
    for p in model.backbone.parameters():
        p.requires_grad = False
    optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-2)
    for step in range(100):
        model.train()
        model.backbone.eval()
        i = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(model(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1}: {loss.item():.4f}")


def frozen_norms(fault):
    """Fine-tuning with the batch norms' statistics and weights left as they were."""
    images, labels = pictures(320, 16)
    model = Classifier(CLASSES)
    with torch.no_grad():
        for _ in range(20):
            model(images[torch.randint(0, 320, (64,))])

    def train_mode(net):
        net.train()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
                module.weight.requires_grad_(False)
                module.bias.requires_grad_(False)

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-4)
    for epoch in range(6):
        train_mode(model)
        for i in torch.randperm(320).split(32):
            loss = F.cross_entropy(model(images[i]), labels[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            print(epoch, round(F.cross_entropy(model(images), labels).item(), 4))


if __name__ == "__main__":
    run(
        {
            "lora": lora,
            "peft": peft_classifier,
            "peft-checkpointed": peft_checkpointed,
            "controlnet": controlnet,
            "finetune": finetune,
            "probe": probe,
            "probe-with-graph": probe_with_graph,
            "frozen-norms": frozen_norms,
        }
    )

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from launch import run
from learning import sentences
from torch import nn

PAD, EOS, WORDS = 0, 1, 24


def answers(count, length=14):
    """Sentences of several lengths; each ends with EOS, and PAD follows."""
    text = sentences(count, length, WORDS)
    lengths = torch.randint(5, length, (count,))
    positions = torch.arange(length)
    text[positions[None] == lengths[:, None]] = EOS
    text[positions[None] > lengths[:, None]] = PAD
    return text, lengths


def gpt2(**options):
    import transformers

    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=20, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=None, eos_token_id=EOS, pad_token_id=PAD, **options,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def finetune(fault):
    """Texts of one length, and a model that makes the loss itself."""
    text = sentences(320, 14, WORDS)
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(100):
        batch = text[torch.randint(0, 320, (24,))]
        if fault == "shifted-twice":
            input_ids, labels = batch[:, :-1], batch[:, 1:].contiguous()
        else:
            input_ids, labels = batch, batch
        loss = model(input_ids=input_ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.4f}")


def padded(fault):
    """Texts of several lengths."""
    text, lengths = answers(320)
    model = gpt2()
    if fault == "pad-is-eos":
        text[text == PAD] = EOS
        labels = text.masked_fill(text == EOS, -100)
    elif fault == "padding-counted":
        wide = torch.full((320, 20), PAD)
        wide[:, :14] = text
        text, labels = wide, wide
    else:
        labels = text.masked_fill(text == PAD, -100)
    mask = (torch.arange(text.shape[1])[None] <= lengths[:, None]).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(100):
        rows = torch.randint(0, 320, (24,))
        out = model(input_ids=text[rows], attention_mask=mask[rows], labels=labels[rows])
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print({"step": step + 1, "loss": round(out.loss.item(), 4)})


def instructions(fault):
    """Of a prompt and its answer, only the answer counts."""
    text = sentences(320, 14, WORDS)
    prompt = torch.randint(4, 9, (320,))
    labels = text.clone()
    for i, n in enumerate(prompt.tolist()):
        if fault == "answers-masked":
            labels[i, :] = -100
        else:
            labels[i, :n] = -100
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(100):
        rows = torch.randint(0, 320, (24,))
        logits = model(text[rows]).logits[:, :-1]
        target = labels[rows, 1:]
        total = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum")
        loss = total / max(1, int((target != -100).sum()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


class TinyLM(nn.Module):
    def __init__(self, tie=""):
        super().__init__()
        self.emb = nn.Embedding(WORDS, 48)
        self.block = nn.TransformerEncoderLayer(48, 4, 96, 0.0, "gelu", batch_first=True, norm_first=True)
        self.ln = nn.LayerNorm(48)
        self.head = nn.Linear(48, WORDS, bias=False)
        nn.init.normal_(self.emb.weight, std=0.1)
        if tie == "cloned":
            self.head.weight = nn.Parameter(self.emb.weight.clone())
        elif tie == "by-data":
            self.head.weight.data = self.emb.weight.data
        elif tie:
            self.head.weight = self.emb.weight

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.ln(self.block(self.emb(ids), src_mask=mask, is_causal=True)))


def own(fault):
    """A model of our own; the target is the next word."""
    text = sentences(400, 12, WORDS)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(120):
        ids = text[torch.randint(0, 400, (32,))]
        logits = model(ids)
        if fault == "not-shifted":
            loss = F.cross_entropy(logits.reshape(-1, WORDS), ids.reshape(-1))
        else:
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, WORDS), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} loss {loss.item():.4f}")


def tied(fault):
    """One matrix for the words that come in and those that go out."""
    text = sentences(400, 12, WORDS)
    if fault == "cloned":
        model = TinyLM(tie="cloned")
    elif fault == "by-data":
        model = TinyLM(tie="by-data")
    else:
        model = TinyLM(tie="yes")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(120):
        ids = text[torch.randint(0, 400, (32,))]
        loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"step {step + 1} loss {loss.item():.4f}")


def tied_gpt2(fault):
    """A model whose configuration ties the words, with a head that was prepared for more words."""
    model = gpt2(tie_word_embeddings=True)
    if fault == "head-replaced":
        head = nn.Linear(48, WORDS, bias=False)
        head.weight = nn.Parameter(model.transformer.wte.weight.detach().clone())
        model.lm_head = head
    text = sentences(320, 14, WORDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(100):
        batch = text[torch.randint(0, 320, (24,))]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")


def tied_autoencoder(fault):
    """The decoder is the transposed encoder."""
    data = torch.tanh(torch.randn(512, 5) @ torch.randn(5, 32))
    encoder, decoder = nn.Linear(32, 8), nn.Linear(8, 32)
    if fault == "copied-transpose":
        decoder.weight = nn.Parameter(encoder.weight.detach().t().clone())
    parts = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    optimizer = torch.optim.Adam(parts.parameters() if fault else [*encoder.parameters(), decoder.bias], lr=5e-3)
    for step in range(150):
        x = data[torch.randint(0, 512, (64,))]
        code = torch.tanh(encoder(x))
        out = decoder(code) if fault else F.linear(code, encoder.weight.t(), decoder.bias)
        loss = F.mse_loss(out, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(step + 1, round(loss.item(), 5))


def masked(fault):
    """A masked language model: most labels do not count."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=10, hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=20, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config)
    text = sentences(400, 14, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(240):
        batch = text[torch.randint(0, 400, (32,))]
        hidden = torch.rand(batch.shape) < 0.15
        hidden[:, 3] = True
        labels = batch.masked_fill(~hidden, -100)
        loss = model(input_ids=batch.masked_fill(hidden, PAD), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} mlm {loss.item():.4f}")


def token_autoencoder(fault):
    """Its targets are its inputs, on purpose."""
    text = sentences(400, 8, WORDS)
    model = nn.Sequential(
        nn.Embedding(WORDS, 16), nn.Flatten(), nn.Linear(128, 48), nn.GELU(), nn.Linear(48, 8 * WORDS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(150):
        batch = text[torch.randint(0, 400, (64,))]
        loss = F.cross_entropy(model(batch).view(-1, WORDS, 8), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def smoothed(fault):
    """Translation with smoothed labels and padding that does not count."""
    text, _ = answers(400)
    emb, rnn, out = nn.Embedding(WORDS, 32, padding_idx=PAD), nn.GRU(32, 64, batch_first=True), nn.Linear(64, WORDS)
    parts = nn.ModuleList([emb, rnn, out])
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.Adam(parts.parameters(), lr=5e-3)
    for step in range(150):
        batch = text[torch.randint(0, 400, (32,))]
        logits = out(rnn(emb(batch[:, :-1]))[0])
        loss = criterion(logits.transpose(1, 2), batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def truncated(fault):
    """Backpropagation through some steps of a long text; the state is detached between them."""
    text = sentences(16, 240, WORDS)
    emb, rnn, out = nn.Embedding(WORDS, 32), nn.LSTM(32, 64, batch_first=True), nn.Linear(64, WORDS)
    optimizer = torch.optim.Adam([*emb.parameters(), *rnn.parameters(), *out.parameters()], lr=5e-3)
    for epoch in range(8):
        state = None
        for t in range(0, 228, 12):
            h, state = rnn(emb(text[:, t : t + 12]), state)
            state = tuple(s.detach() for s in state)
            loss = F.cross_entropy(out(h).transpose(1, 2), text[:, t + 1 : t + 13])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


def momentum_copy(fault):
    """Two copies of one language model, which are meant to differ: the one is trained, the other is the reference."""
    text = sentences(320, 12, WORDS)
    policy = TinyLM()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    for step in range(120):
        ids = text[torch.randint(0, 320, (32,))]
        logits = policy(ids[:, :-1])
        with torch.no_grad():
            base = reference(ids[:, :-1]).log_softmax(-1)
        kl = F.kl_div(base, logits.log_softmax(-1), log_target=True, reduction="batchmean") / 11
        loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:]) + 0.05 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} loss {loss.item():.4f} kl {kl.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "finetune": finetune,
            "padded": padded,
            "instructions": instructions,
            "own": own,
            "tied": tied,
            "tied-gpt2": tied_gpt2,
            "tied-autoencoder": tied_autoencoder,
            "masked": masked,
            "token-autoencoder": token_autoencoder,
            "smoothed": smoothed,
            "truncated": truncated,
            "momentum-copy": momentum_copy,
        }
    )

"""Names of settings in fairseq, Hugging Face, Eole (OpenNMT-py) and Joey NMT."""

from __future__ import annotations

RENAMED = {
    "scales": "profiles",
    "scale": "profile",
    "scale_notes": "profile_notes",
    "steps": "measures",
    "systems": "lines",
    "items": "studies",
    "dataset": "recipe",
}
"""A key's former name → its name now, in the same section."""

_OURS_AND_THEIRS = """\
data.corpus.source src src_lang source_lang
data.corpus.target trg tgt tgt_lang target_lang
data.corpus.root data_path path
data.recipe dataset
data.subwords.vocab_size vocab bpe_size voc_limit src_vocab_size tgt_vocab_size
decoding.beam beam_size num_beams beams
decoding.length_penalty.alpha beam_alpha alpha lenpen
decoding.max_length_b max_len_b max_output_length max_new_tokens
evaluation.metrics metric eval_metrics eval_metric
model.activation activation_fn activation_function hidden_act
model.attention_dropout attention_probs_dropout_prob
model.activation_dropout relu_dropout
model.decoder_layers dec_layers num_decoder_layers
model.dim d_model hidden_size rnn_size embedding_dim embed_dim encoder_embed_dim n_embd model_dim
model.dropout hidden_dropout_prob dropout_rate resid_pdrop
model.encoder_layers enc_layers layers num_layers n_layer n_layers
model.encoder_layers num_hidden_layers num_encoder_layers
model.ff_dim d_ff ff_size ffn_dim intermediate_size transformer_ff dim_feedforward
model.num_heads heads nhead n_heads n_head num_attention_heads encoder_attention_heads
model.share_embeddings share_all_embeddings tied_embeddings share_vocab
model.size arch
model.tie_output tied_softmax tie_word_embeddings share_decoder_input_output_embed
position positions position_encoding position_encoding_type position_embedding_type pe
position.parts.0.base rope_theta
position.parts.0.max_distance max_relative_positions
position.parts.0.num_positions max_position_embeddings n_positions
training.accumulation update_freq accum_count gradient_accumulation_steps batch_multiplier
training.average_checkpoints num_update_checkpoints avg_checkpoints
training.batch.max_sentences per_device_train_batch_size
training.batch.max_tokens batch_size max_tokens
training.best_metric metric_for_best_model best_checkpoint_metric early_stopping_metric
training.checkpoint_every save_steps save_interval save_interval_updates save_checkpoint_steps
training.clip_norm max_grad_norm clip_grad_norm gradient_clipping
training.compile torch_compile
training.init_from train_from load_model finetune_from_model restore_file
training.keep_checkpoints keep_checkpoint save_total_limit keep_last_epochs keep_best_ckpts
training.label_smoothing label_smoothing_factor
training.log_every logging_steps log_interval report_every logging_freq
training.max_updates max_update max_steps train_steps total_steps steps updates
training.max_updates epochs epoch max_epoch num_train_epochs
training.optimizer.betas adam_betas
training.optimizer.eps adam_eps adam_epsilon
training.optimizer.name optim
training.optimizer.weight_decay wd
training.patience early_stopping early_stopping_patience
training.precision fp16 bf16 amp dtype
training.schedule lr_scheduler lr_scheduler_type scheduling decay_method
training.schedule.peak lr learning_rate max_lr
training.schedule.warmup_updates warmup_steps warmup learning_rate_warmup
training.seed random_seed
training.validate_every eval_steps valid_steps validation_freq
"""
FOREIGN_NAMES = {
    name: key for key, *names in map(str.split, _OURS_AND_THEIRS.splitlines()) for name in names
}
"""Name elsewhere → key here."""

_UPDATES = (
    "it counts updates, not epochs: one epoch is about the tokens of the training text, divided by"
    " training.batch.max_tokens"
)
_OTHER_UNITS = {
    **dict.fromkeys(("epochs", "epoch", "max_epoch", "num_train_epochs"), _UPDATES),
    "batch_size": "it counts tokens; training.batch.max_sentences counts sentences",
    "save_interval": "it counts updates, not epochs",
    "keep_last_epochs": "it counts checkpoints, which are written every training.checkpoint_every"
    " updates",
}
"""Name elsewhere → what the key here counts, where another toolkit counts something else."""


def unit_note(name: str) -> str:
    """Return a note in brackets if our key counts in another unit than the foreign one."""
    return f" ({_OTHER_UNITS[name]})" if name in _OTHER_UNITS else ""

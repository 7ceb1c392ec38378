import type { Finding } from './findings'

/** Types of operators, as spelled by PyTorch and by MindSpore, and their remedies. */
const BY_TYPE: readonly (readonly [RegExp, string])[] = [
  [/^(log|log2|log10|log1p|xlogy|logit)$/, 'logarithm'],
  [/^(div|realdiv|truediv|true_divide|floordiv|reciprocal|rsqrt|inv|divnonan|mod)$/, 'division'],
  [/^(sqrt|pow|sqrtgrad|norm|linalg_vector_norm)$/, 'root'],
  [/^(exp|exp2|expm1|cosh|sinh|softplus)$/, 'exponential'],
]
const SUMS =
  /^(add|addn|sub|rsub|mul|mean|reducemean|sum|reducesum|cumsum|mm|bmm|matmul|batchmatmul|addmm|baddbmm|linear|einsum|dot|conv.*|cast|_to_copy|pow|square)$/

interface Run {
  framework: string
  dump: string
  capabilities: { live: boolean }
}

/** Return the key of the text that says how to find the exact origin in this kind of run. */
export function whereUncertain(session: Run | undefined): string {
  if (session?.framework.toLowerCase() !== 'mindspore') return 'uncertain'
  const wasDebugged = session.capabilities.live || session.dump.startsWith('runs/')
  return wasDebugged ? 'uncertainMindSpore' : 'uncertainDump'
}

/** Return the key of the text that says what to do about a finding. */
export function remedyOf(finding: Finding): string {
  if (finding.kind === 'hit') return 'advice'
  const { origin } = finding
  if (origin.unseen) return 'unseen'
  if (origin.changed) return 'changed'
  if (origin.arrived) return 'arrived'
  if (!origin.certain) return 'uncertain'
  if (origin.anomaly === 'explosion' || origin.anomaly === 'all_zero') return origin.anomaly
  const type = origin.type.toLowerCase().replace(/_+$/, '')
  const rule = BY_TYPE.find(([pattern]) => pattern.test(type))
  if (rule) return rule[1]
  if (SUMS.test(type)) return origin.anomaly === 'nan' ? 'infinities' : 'range'
  return 'other'
}

import type { Finding } from './findings'

/** Types of operators, in the spelling of PyTorch and of MindSpore, and what goes wrong in them. */
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

/** Which text says how the origin of an anomaly is known for certain, in a run like this. */
export function whereUncertain(session: Run | undefined): string {
  if (session?.framework.toLowerCase() !== 'mindspore') return 'uncertain'
  const wasDebugged = session.capabilities.live || session.dump.startsWith('runs/')
  return wasDebugged ? 'uncertainMindSpore' : 'uncertainDump'
}

/** Which text says what to do about a finding where an operator made NaN or Inf of sound inputs. */
export function remedyOf(finding: Finding): string {
  if (finding.kind === 'hit') return 'advice'
  const { origin } = finding
  if (origin.unseen) return 'unseen'
  if (origin.arrived) return 'arrived'
  if (!origin.certain) return 'uncertain'
  if (origin.anomaly === 'explosion' || origin.anomaly === 'all_zero') return origin.anomaly
  const type = origin.type.toLowerCase().replace(/_+$/, '')
  const found = BY_TYPE.find(([pattern]) => pattern.test(type))
  if (found) return found[1]
  if (SUMS.test(type)) return origin.anomaly === 'nan' ? 'infinities' : 'range'
  return 'other'
}

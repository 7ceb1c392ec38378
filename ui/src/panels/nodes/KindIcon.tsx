import {
  IconAdjustmentsHorizontal,
  IconBox,
  IconBraces,
  IconCircleDashed,
  IconFunction,
  IconMathPi,
  IconSnowflake,
  IconStack2,
  IconTrendingDown,
  IconVariable,
  IconWaveSine,
  IconWeight,
  type Icon,
} from '~/parts/icons'
import type { TreeEntry } from '~/api/types'
import classes from './nodes.module.css'

/** The kind of a row; each has an icon and a name. */
export type EntryKind =
  TreeEntry['kind'] | 'dynamic' | 'weight' | 'frozen' | 'state' | 'gradient' | 'activation'

const icons: Record<EntryKind, Icon> = {
  scope: IconBox,
  parameters: IconStack2,
  constants: IconBraces,
  operator: IconFunction,
  dynamic: IconCircleDashed,
  parameter: IconVariable,
  weight: IconWeight,
  frozen: IconSnowflake,
  state: IconAdjustmentsHorizontal,
  constant: IconMathPi,
  gradient: IconTrendingDown,
  activation: IconWaveSine,
}

export function entryKind(entry: Pick<TreeEntry, 'kind' | 'roles' | 'dynamic_shape'>): EntryKind {
  const { kind, roles } = entry
  if (kind === 'parameter') {
    if (roles.includes('frozen_weight')) return 'frozen'
    if (roles.includes('weight')) return 'weight'
    return roles.includes('optimizer_state') ? 'state' : kind
  }
  if (kind !== 'operator') return kind
  if (roles.includes('gradient')) return 'gradient'
  if (roles.includes('activation')) return 'activation'
  return entry.dynamic_shape ? 'dynamic' : kind
}

/** The icon of a row's kind; its colour only repeats the meaning of its shape. */
export function KindIcon({ kind, label }: { kind: EntryKind; label?: string }) {
  const Sign = icons[kind]
  const named = label === undefined ? { 'aria-hidden': true } : { role: 'img', 'aria-label': label }
  return <Sign size={14} stroke={1.75} className={classes['kind']} data-kind={kind} {...named} />
}

import { useTranslation } from 'react-i18next'
import { short } from '~/parts/numbers'
import classes from './compare.module.css'
import { errorText } from './measures'
import type { TensorDifference } from '~/api/types'
import { compareTexts } from './texts'

const SHARES = ['over_1_permille', 'over_5_permille'] as const

/** The distance of two tensors, by all available measures. */
export function Measures({ difference }: { difference: TensorDifference }) {
  const { t } = useTranslation(compareTexts)
  const { is_comparable, bit_equal, from_values, relative, cosine, norm_ratio } = difference
  const listed: [string, string][] = []
  const tell = (name: string, value: number | null | undefined, text: (value: number) => string) => {
    if (value != null) listed.push([t(`measures.${name}`), text(value)])
  }
  if (is_comparable && !bit_equal) {
    tell('relative', relative, (value) =>
      from_values ? errorText(value) : t('lowerBound', { value: errorText(value) }),
    )
    if (from_values) {
      tell('max_absolute', difference.max_absolute, errorText)
      tell('cosine', cosine, (value) => value.toFixed(6))
      tell('norm_ratio', norm_ratio, short)
      for (const name of SHARES) tell(name, difference[name], (value) => `${errorText(100 * value)} %`)
      tell('max_ulps', difference.max_ulps, errorText)
    }
  }
  return (
    <dl className={classes['measures']} aria-label={t('measuresLabel')} data-testid="compare-measures">
      {listed.length === 0 ? (
        <div title={difference.text}>
          <dd>{bit_equal ? t('same') : difference.text}</dd>
        </div>
      ) : (
        listed.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))
      )}
    </dl>
  )
}

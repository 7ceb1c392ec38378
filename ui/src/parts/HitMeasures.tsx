import { useTranslation } from 'react-i18next'
import type { HitRecord } from '~/api/types'
import classes from './Advice.module.css'
import { conditionTexts } from './conditionTexts'
import { useConditionWords } from './conditionWords'

/** One hit in numbers: what the tensor has, beside the limit; or why the check could not be made. */
export function HitMeasures({ hit }: { hit: HitRecord }) {
  const { t } = useTranslation(conditionTexts)
  const words = useConditionWords()
  if (!hit.hit) {
    return (
      <p className={classes['unchecked']} data-testid="hit-error">
        {t('unchecked', { why: words.errors(hit).join(' ') })}
      </p>
    )
  }
  return (
    <ul className={classes['measures']}>
      {words.measures(hit).map((one) => (
        <li key={one.name} data-hit={one.hit}>
          <span>{one.label}</span>
          {one.actual && <b className="mono">{one.actual}</b>}
          {one.limit && <span className={classes['limit']}>{t('limit', { limit: one.limit })}</span>}
        </li>
      ))}
    </ul>
  )
}

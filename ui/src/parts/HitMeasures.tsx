import { useTranslation } from 'react-i18next'
import type { HitRecord } from '~/api/types'
import classes from './Advice.module.css'
import { conditionTexts } from './conditionTexts'
import { useConditionWords } from './conditionWords'

/** The measured values of a hit beside their limits; or why the tensor could not be checked. */
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
      {words.measures(hit).map((measure) => (
        <li key={measure.name} data-hit={measure.hit}>
          <span>{measure.label}</span>
          {measure.actual && <b className="mono">{measure.actual}</b>}
          {measure.limit && <span className={classes['limit']}>{t('limit', { limit: measure.limit })}</span>}
        </li>
      ))}
      {hit.since != null && <li>{t(hit.may_be_older ? 'sinceOrEarlier' : 'since', { step: hit.since })}</li>}
    </ul>
  )
}

import { IconArrowRight } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { count, short } from '~/parts/numbers'
import type { Finding } from './findings'
import classes from './origin.module.css'
import { originTexts } from './texts'
import { sideOf, useValues, type Side } from './values'

/** The inputs and outputs of the finding's operator in one line. */
export function ValuesLine({ finding }: { finding: Finding }) {
  const { t } = useTranslation(originTexts)
  const { data = [] } = useValues(finding)
  const [input, output] = [sideOf(data, 'input'), sideOf(data, 'output')]
  return (
    <div className={classes['sides']} data-testid="origin-values">
      {input.elements > 0 && (
        <span>
          {t('wentIn')} <SideText side={input} />
        </span>
      )}
      {input.elements > 0 && output.elements > 0 && <IconArrowRight size={14} aria-hidden />}
      {output.elements > 0 && (
        <span>
          {t('cameOut')} <SideText side={output} />
        </span>
      )}
    </div>
  )
}

function SideText({ side }: { side: Side }) {
  const { t } = useTranslation(originTexts)
  const range = side.isUnbounded
    ? t('notRecorded')
    : side.min === null
      ? t('nothingFinite')
      : t('from', { min: short(side.min), max: short(side.max) })
  return (
    <>
      <b className="mono">{range}</b>
      {[
        { what: 'NaN', amount: side.nan },
        { what: '−Inf', amount: side.negInf },
        { what: '+Inf', amount: side.posInf },
      ]
        .filter(({ amount }) => amount > 0)
        .map(({ what, amount }) => (
          <b key={what} className={`${classes['bad'] ?? ''} mono`}>
            {' '}
            {count(amount)} × {what}
          </b>
        ))}
    </>
  )
}

import { Radio, SegmentedControl } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import type { Condition } from '~/api/types'
import { adviceText } from '~/parts/adviceText'
import { useConditionWords } from '~/parts/conditionWords'
import classes from './dialog.module.css'
import { watchpointsTexts } from './texts'

const TARGETS = ['tensor', 'weight', 'gradient', 'activation'] as const

/** The kind of tensor, then the condition; what cannot be watched here says why. */
export function ConditionChoice(props: {
  conditions: Condition[]
  chosen: Condition
  /** The condition of a watchpoint stays what it is. */
  isFixed: boolean
  choose: (condition: Condition) => void
}) {
  const { conditions, chosen, isFixed, choose } = props
  const { t } = useTranslation(watchpointsTexts)
  const words = useConditionWords()
  const ofTarget = (target: string) =>
    conditions
      .filter((one) => one.target === target)
      .sort((one, other) => Number(other.available) - Number(one.available))
  if (isFixed) {
    return (
      <div className={classes['conditions']}>
        <div className={classes['label']}>{t('condition')}</div>
        <div>
          <b>{words.label(chosen.id)}</b> <abbr>{chosen.abbreviation}</abbr>
        </div>
      </div>
    )
  }
  return (
    <div className={classes['conditions']}>
      <div className={classes['label']} id="watchpoint-category">
        {t('category')}
      </div>
      <SegmentedControl
        aria-labelledby="watchpoint-category"
        orientation="vertical"
        fullWidth
        data={TARGETS.map((value) => ({ value, label: t(`categories.${value}`) }))}
        value={chosen.target}
        onChange={(target) => {
          const first = ofTarget(target)[0]
          if (first) choose(first)
        }}
      />
      <Radio.Group
        label={t('condition')}
        value={chosen.id}
        onChange={(id) => {
          const next = conditions.find((one) => one.id === id)
          if (next) choose(next)
        }}
      >
        <div className={classes['choices']}>
          {ofTarget(chosen.target).map((one) => (
            <Radio
              key={one.id}
              size="xs"
              value={one.id}
              disabled={!one.available}
              label={
                <>
                  {words.label(one.id)} <abbr>{one.abbreviation}</abbr>
                </>
              }
              description={
                one.available ? undefined : t('unavailable', { why: adviceText(one.unavailable_because) })
              }
            />
          ))}
        </div>
      </Radio.Group>
    </div>
  )
}

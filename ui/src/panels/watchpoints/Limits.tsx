import { Collapse, TextInput, UnstyledButton } from '@mantine/core'
import { IconChevronDown, IconChevronRight } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import type { Condition, ConditionParameter } from '~/api/types'
import { conditionTexts } from '~/parts/conditionTexts'
import { limitOf, SIGNS } from '~/parts/conditionWords'
import classes from './dialog.module.css'
import { isAdvanced, isPercentage, neededCompanions, shownParameters, type Draft } from './draft'
import { watchpointsTexts } from './texts'

/** The limits of a condition, labelled with their quantities; advanced ones are folded. */
export function Limits(props: {
  condition: Condition
  draft: Draft
  messageOf: (field: string) => string | undefined
  change: (values: Draft['values']) => void
}) {
  const { condition, draft, messageOf, change } = props
  const { t } = useTranslation(watchpointsTexts)
  const [isOpen, setOpen] = useState(false)
  const parameters = shownParameters(condition)
  const advanced = parameters.filter(isAdvanced)
  const needed = neededCompanions(draft, condition)
  const field = (parameter: ConditionParameter) => (
    <Field
      key={parameter.name}
      parameter={parameter}
      value={draft.values[parameter.name] ?? ''}
      values={draft.values}
      isNeeded={needed.includes(parameter.name)}
      message={messageOf(parameter.name)}
      change={(value) => change({ ...draft.values, [parameter.name]: value })}
    />
  )
  if (parameters.length === 0) return <p className={classes['hint']}>{t('noThresholds')}</p>
  return (
    <fieldset className={classes['limits']}>
      <legend className={classes['label']}>{t('thresholds')}</legend>
      <p className={classes['hint']}>{t('thresholdsHint')}</p>
      <div className={classes['fields']}>
        {parameters.filter((parameter) => !isAdvanced(parameter)).map(field)}
      </div>
      {advanced.length > 0 && (
        <>
          <UnstyledButton className={classes['more']} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />} {t('advanced')}
          </UnstyledButton>
          <Collapse expanded={isOpen}>
            <div className={classes['fields']}>{advanced.map(field)}</div>
          </Collapse>
        </>
      )}
    </fieldset>
  )
}

function Field(props: {
  parameter: ConditionParameter
  value: string
  values: Draft['values']
  isNeeded: boolean
  message: string | undefined
  change: (value: string) => void
}) {
  const { t } = useTranslation(conditionTexts)
  const { name, kind } = props.parameter
  const limit = limitOf(name)
  const quantity =
    kind === 'check' && limit
      ? t(`measured.${limit.quantity}`, {
          defaultValue: limit.quantity.replaceAll('_', ' '),
          start: props.values['range_start_inclusive'] || '…',
          end: props.values['range_end_inclusive'] || '…',
        })
      : t(`support.${name}`, { defaultValue: name.replaceAll('_', ' ') })
  const label = kind === 'check' && limit ? `${quantity} ${SIGNS[limit.comparator]}` : quantity
  return (
    <TextInput
      label={label}
      inputMode="decimal"
      autoComplete="off"
      value={props.value}
      required={props.isNeeded}
      error={props.message}
      rightSection={isPercentage(name) ? '%' : undefined}
      onChange={(event) => props.change(event.currentTarget.value)}
      data-parameter={name}
    />
  )
}
